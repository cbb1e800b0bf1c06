// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/internal/convert"
	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// conversions register how the kind of this package becomes that of
// agents.kruise.io/v1alpha1, which is what is stored, and the way back, by those of
// v1beta1.
var conversions = runtime.NewSchemeBuilder(
	convert.Pair(sandboxToHub, sandboxFromHub),
	convert.Pair(sandboxListToHub, sandboxListFromHub),
)

// AddConversions registers the conversions. Only the API server needs them.
func AddConversions(scheme *runtime.Scheme) error {
	return conversions.AddToScheme(scheme)
}

func sandboxListToHub(in *SandboxList, out *hub.SandboxList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, sandboxToHub)
}

func sandboxListFromHub(in *hub.SandboxList, out *SandboxList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, sandboxFromHub)
}
