// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/internal/convert"
	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// conversions register how the kind of this package becomes that of
// agents.kruise.io/v1alpha1, which is what is stored, and the way back.
//
// As generated conversions do, they share maps, slices and pointers with what they
// convert: neither may be changed afterwards. Nothing that this package can say in a spec
// is lost on the way there and back. The status is derived when a sandbox is read, so
// none is converted to what is stored. What the other group alone can say is not seen
// here; code that stores an update has to keep it.
var conversions = runtime.NewSchemeBuilder(
	convert.Pair(SandboxToHub, SandboxFromHub),
	convert.Pair(sandboxListToHub, sandboxListFromHub),
)

// AddConversions registers the conversions. Only the API server needs them.
func AddConversions(scheme *runtime.Scheme) error {
	return conversions.AddToScheme(scheme)
}

func sandboxListToHub(in *SandboxList, out *hub.SandboxList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, SandboxToHub)
}

func sandboxListFromHub(in *hub.SandboxList, out *SandboxList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, SandboxFromHub)
}
