// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
)

// NewAccessChecker returns a checker that lets only the claimer, and users with the right to bind, change
// what future sandboxes of a claim run. The claim gives these sandboxes secrets of the claimer, such
// as envVars.
func NewAccessChecker(may authorizer.UnconditionalAuthorizer) *accesscheck.Checker {
	return &accesscheck.Checker{Resource: "sandboxclaims", Authorizer: may, PodRights: podChangeRights}
}

// podChangeRights returns the rights that an update requires because it changes what future
// sandboxes of a claim run.
func podChangeRights(obj, old runtime.Object) []accesscheck.Right {
	claim, ok := obj.(*v1alpha1.SandboxClaim)
	before, was := old.(*v1alpha1.SandboxClaim)
	if !ok || !was || !validation.ChoosesPods(&claim.Spec, &before.Spec) {
		return nil
	}
	bind := accesscheck.Bind(field.NewPath("spec"))
	if user := before.Annotations[v1alpha1.AnnotationClaimedBy]; user != "" {
		bind.Claimer = v1alpha1.ClaimedByLabel(user)
	}
	return []accesscheck.Right{bind}
}
