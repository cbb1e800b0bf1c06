// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// missing is for how many sandboxes of pools a claim waits. One that makes fresh
// ones waits for none.
func missing(claim *v1alpha1.SandboxClaim) int {
	if claim.DeletionTimestamp != nil ||
		claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming ||
		ptr.Deref(claim.Spec.CreateOnNoStock, true) {
		return 0
	}
	return int(max(ptr.Deref(claim.Spec.Replicas, v1alpha1.DefaultClaimReplicas)-claim.Status.ClaimedReplicas, 0))
}

// askedOf is what a claim asks for: a set or a template.
func askedOf(claim *v1alpha1.SandboxClaim) types.NamespacedName {
	name, _ := v1alpha1.AskedOf(claim)
	return types.NamespacedName{Namespace: claim.Namespace, Name: name}
}

// serves says whether a set may serve a claim of its namespace, as the API server
// decides it: templateName is the set of that name or, if there is none, the sets
// that refer to the template of that name; sandboxTemplateRef is always the latter,
// and a set of that name with a template of its own is one of them. warmPool leaves
// one of these. named is whether there is a set of the name that the claim asks for.
func serves(set *v1alpha1.SandboxSet, claim *v1alpha1.SandboxClaim, named bool) bool {
	asked, byRef := v1alpha1.AskedOf(claim)
	isAsked, refers := set.Name == asked, v1alpha1.SandboxTemplateOf(set) == asked
	only := false
	switch pool := claim.Spec.WarmPool; pool {
	case "", v1alpha1.WarmPoolDefault:
	case set.Name:
		only = true
	default:
		return false
	}
	if byRef {
		return refers || isAsked && set.Spec.Template != nil
	}
	return isAsked || refers && (only || !named)
}

// askable are the names by which claims may ask for what a set has: its own, and then
// that of the template that it refers to.
func askable(set *v1alpha1.SandboxSet) []string {
	names := []string{set.Name}
	if template := v1alpha1.SandboxTemplateOf(set); template != "" && template != set.Name {
		names = append(names, template)
	}
	return names
}

// burstOf is how far a set may grow beyond its replicas.
func burstOf(set *v1alpha1.SandboxSet) int {
	return int(max(ptr.Deref(set.Spec.ScaleStrategy.Burst, 0), 0))
}
