// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// claimToHub converts a claim to what is stored. One that names a pool and no template is
// by warmPoolRef, as claimFromHub shows those of later versions.
func claimToHub(in *SandboxClaim, out *hub.SandboxClaim) {
	spec := v1beta1.SandboxClaimSpec{
		WarmPool:              in.Spec.WarmPool,
		Lifecycle:             in.Spec.Lifecycle,
		AdditionalPodMetadata: in.Spec.AdditionalPodMetadata,
		Env:                   in.Spec.Env,
	}
	switch {
	case in.Spec.SandboxTemplateRef.Name != "":
		spec.SandboxTemplateRef = &v1beta1.SandboxTemplateRef{Name: in.Spec.SandboxTemplateRef.Name}
	case namesPool(in.Spec.WarmPool):
		spec.WarmPoolRef, spec.WarmPool = &v1beta1.SandboxWarmPoolRef{Name: in.Spec.WarmPool}, ""
	}
	v1beta1.ClaimToHub(&v1beta1.SandboxClaim{ObjectMeta: in.ObjectMeta, Spec: spec, Status: in.Status}, out)
}

// claimFromHub converts a claim from what is stored. One by warmPoolRef, or by the name of a
// set, is shown with that pool and no template: which one it is only the pool says.
func claimFromHub(in *hub.SandboxClaim, out *SandboxClaim) {
	var claim v1beta1.SandboxClaim
	v1beta1.ClaimFromHub(in, &claim)
	out.ObjectMeta, out.Status = claim.ObjectMeta, claim.Status
	out.Spec = SandboxClaimSpec{
		WarmPool:              in.Spec.WarmPool,
		Lifecycle:             claim.Spec.Lifecycle,
		AdditionalPodMetadata: claim.Spec.AdditionalPodMetadata,
		Env:                   claim.Spec.Env,
	}
	switch template, pool := claim.Spec.SandboxTemplateRef, claim.Spec.WarmPoolRef; {
	case template != nil:
		out.Spec.SandboxTemplateRef = *template
	case pool != nil:
		out.Spec.WarmPool = pool.Name
	}
}

// namesPool reports whether warmpool is the name of a pool.
func namesPool(warmpool string) bool {
	return warmpool != "" && warmpool != v1beta1.WarmPoolDefault && warmpool != v1beta1.WarmPoolNone
}
