// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/internal/convert"
	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Conversions between the kinds of this package and those of agents.kruise.io/v1alpha1, by
// way of v1beta1, which knows the words. They share what those of v1beta1 share, and lose
// nothing that this package can say.

var conversions = runtime.NewSchemeBuilder(
	convert.Pair(claimToHub, claimFromHub),
	convert.Pair(templateToHub, templateFromHub),
	convert.Pair(warmPoolToHub, warmPoolFromHub),
	convert.Pair(claimListToHub, claimListFromHub),
	convert.Pair(templateListToHub, templateListFromHub),
	convert.Pair(warmPoolListToHub, warmPoolListFromHub),
)

// AddConversions registers the conversions. Only the API server needs them.
func AddConversions(scheme *runtime.Scheme) error {
	return conversions.AddToScheme(scheme)
}

func claimListToHub(in *SandboxClaimList, out *hub.SandboxClaimList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, claimToHub)
}

func claimListFromHub(in *hub.SandboxClaimList, out *SandboxClaimList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, claimFromHub)
}

func templateListToHub(in *SandboxTemplateList, out *hub.SandboxTemplateList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, templateToHub)
}

func templateListFromHub(in *hub.SandboxTemplateList, out *SandboxTemplateList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, templateFromHub)
}

func warmPoolListToHub(in *SandboxWarmPoolList, out *hub.SandboxSetList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, warmPoolToHub)
}

func warmPoolListFromHub(in *hub.SandboxSetList, out *SandboxWarmPoolList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, warmPoolFromHub)
}
