// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/registry/sandbox/rights"
)

// NewGuard returns a guard that lets only the claimer, and users with the right to bind, choose
// what sandboxes that a claim is still to get run: the claimer trusts them with what the
// claim sets them up with.
func NewGuard(may authorizer.UnconditionalAuthorizer) *rights.Guard {
	return &rights.Guard{Resource: "sandboxclaims", Authorizer: may, Needed: rightsNeeded}
}

// rightsNeeded returns the rights that a change of a claim takes beyond the one to change claims.
func rightsNeeded(obj, old runtime.Object) ([]rights.Right, error) {
	claim, isClaim := obj.(*v1alpha1.SandboxClaim)
	before, wasClaim := old.(*v1alpha1.SandboxClaim)
	if !isClaim || !wasClaim {
		return nil, fmt.Errorf("checking a write: %T and %T are not both a SandboxClaim", obj, old)
	}
	if !validation.ChoosesPods(&claim.Spec, &before.Spec) {
		return nil, nil
	}
	bind := rights.Bind(field.NewPath("spec"))
	if user := before.Annotations[v1alpha1.AnnotationClaimedBy]; user != "" {
		bind.Holder = v1alpha1.ClaimedByLabel(user)
	}
	return []rights.Right{bind}, nil
}
