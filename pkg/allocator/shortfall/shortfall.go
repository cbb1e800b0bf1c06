// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shortfall has what a claim asks for and does not get, and warns its user of that.
package shortfall

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/warning"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Shortfall is what a claim asks for and does not get.
type Shortfall struct {
	// HeldBack are the fields of the claim that were kept from pods.
	HeldBack sets.Set[string]
	// WithoutRuntime are the pools whose sandboxes have no agent-runtime to set up.
	WithoutRuntime sets.Set[string]
}

// Update makes s like other, which has what s has and may have more.
func (s *Shortfall) Update(other *Shortfall) {
	if len(s.HeldBack) != len(other.HeldBack) {
		s.HeldBack = other.HeldBack.Clone()
	}
	if len(s.WithoutRuntime) != len(other.WithoutRuntime) {
		s.WithoutRuntime = other.WithoutRuntime.Clone()
	}
}

// Warn warns the client of a claim of what it does not get.
func (s *Shortfall) Warn(ctx context.Context, claim *v1alpha1.SandboxClaim) {
	if s.HeldBack.Len() > 0 {
		warnOfHeldBack(ctx, sets.List(s.HeldBack))
	}
	if s.WithoutRuntime.Len() > 0 {
		WarnOfRuntimes(ctx, claim, sets.List(s.WithoutRuntime))
	}
}

// maxWarned is how many fields one warning names.
const maxWarned = 5

// warnOfHeldBack warns the client of which of its labels and annotations are not on all of
// the pods.
func warnOfHeldBack(ctx context.Context, fields []string) {
	named := strings.Join(fields[:min(len(fields), maxWarned)], ", ")
	if more := len(fields) - maxWarned; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	warning.AddWarning(ctx, "", named+": on the sandboxes, but not on all of their pods: "+
		"held back by a podMetadataPolicy, by the default of the installation, or because the pod template says otherwise")
}

// WarnOfRuntimes warns the client that its envVars are not delivered in the sandboxes of some
// pools, which are named as plan.Marks names them.
func WarnOfRuntimes(ctx context.Context, claim *v1alpha1.SandboxClaim, pools []string) {
	if len(pools) == 0 || len(claim.Spec.EnvVars) == 0 {
		return
	}
	named := strings.Join(pools[:min(len(pools), maxWarned)], ", ")
	if more := len(pools) - maxWarned; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	warning.AddWarning(ctx, "", named+" has no agent-runtime: envVars are not delivered")
}
