// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"fmt"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// MismatchError means that a claim of agent-sandbox names a pool and a template, and the pool
// is of another one. Nothing was written.
type MismatchError struct {
	// Pool and Template are what the claim names.
	Pool, Template string
}

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("is not a pool of SandboxTemplate %q, which spec.sandboxTemplateRef names; "+
		"name a pool of that template, or leave one of the two out", e.Template)
}

// namesBoth reports whether a claim of agent-sandbox names its pool and its template.
func namesBoth(claim *v1alpha1.SandboxClaim) bool {
	return v1alpha1.OfAgentSandbox(claim) && claim.Spec.WarmPoolRef != nil && claim.Spec.SandboxTemplateRef != nil
}

// ofOneTemplate fails with a *MismatchError for a claim that names both, where they do not
// belong together. What does not exist is for the status of the claim to tell.
func ofOneTemplate(claim *v1alpha1.SandboxClaim, e *claims.Eligible) error {
	if !namesBoth(claim) || e.Problem == nil || e.Problem.Reason != v1alpha1.ReasonWarmPoolMismatch {
		return nil
	}
	return &MismatchError{Pool: claim.Spec.WarmPoolRef.Name, Template: claim.Spec.SandboxTemplateRef.Name}
}

// CheckSource fails with a *MismatchError for a claim of agent-sandbox that names a pool of
// another template than it names beside that. The pools are read as they are now before that.
func (a *Allocator) CheckSource(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	if !namesBoth(claim) {
		return nil
	}
	e, err := a.stock.eligible(ctx, claim, true)
	if err != nil {
		return err
	}
	return ofOneTemplate(claim, &e)
}
