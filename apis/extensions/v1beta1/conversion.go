// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/internal/convert"
	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Conversions between the kinds of this package and those of agents.kruise.io/v1alpha1,
// which are what is stored. As generated conversions do, they share maps, slices and
// pointers with what they convert, metadata and raw JSON included: neither may be changed
// in place afterwards.
//
// Nothing that this package can say is lost on the way there and back. What the other
// group alone can say is not seen here; code that stores an update has to keep it.

var conversions = runtime.NewSchemeBuilder(
	convert.Pair(ClaimToHub, ClaimFromHub),
	convert.Pair(TemplateToHub, TemplateFromHub),
	convert.Pair(WarmPoolToHub, WarmPoolFromHub),
	convert.Pair(claimListToHub, claimListFromHub),
	convert.Pair(templateListToHub, templateListFromHub),
	convert.Pair(warmPoolListToHub, warmPoolListFromHub),
)

// AddConversions registers the conversions. Only the API server needs them.
func AddConversions(scheme *runtime.Scheme) error {
	return conversions.AddToScheme(scheme)
}

func claimListToHub(in *SandboxClaimList, out *hub.SandboxClaimList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, ClaimToHub)
}

func claimListFromHub(in *hub.SandboxClaimList, out *SandboxClaimList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, ClaimFromHub)
}

func templateListToHub(in *SandboxTemplateList, out *hub.SandboxTemplateList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, TemplateToHub)
}

func templateListFromHub(in *hub.SandboxTemplateList, out *SandboxTemplateList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, TemplateFromHub)
}

func warmPoolListToHub(in *SandboxWarmPoolList, out *hub.SandboxSetList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, WarmPoolToHub)
}

func warmPoolListFromHub(in *hub.SandboxSetList, out *SandboxWarmPoolList) {
	out.ListMeta, out.Items = in.ListMeta, convert.Each(in.Items, WarmPoolFromHub)
}
