// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Progress is how far a sandbox is on its way to count.
type Progress int

const (
	// Done means that there is nothing left to do.
	Done Progress = iota
	// Pending means that it may still come to count.
	Pending
	// Failed means that it never will.
	Failed
)

// ProgressInterval is how often a claim's progress is written while nothing but its
// count changes, or that of its resizes.
const ProgressInterval = 500 * time.Millisecond

// preparation is how far a sandbox is, and why.
type preparation struct {
	progress Progress
	// setup is why its runtime could not be set up, or, while that is pending, why it fails if its time
	// is up; nil if the sandbox itself says why.
	setup *claims.SetupError
}

// readiness returns how far a sandbox is by itself: it has to run, to be ready and to have an
// address.
func readiness(sb *v1alpha1.Sandbox, now time.Time) Progress {
	switch sb.Status.Phase {
	case v1alpha1.SandboxFailed, v1alpha1.SandboxSucceeded, v1alpha1.SandboxTerminating:
		return Failed
	}
	if v1alpha1.StateOf(sb, now) == v1alpha1.StateRunning && sb.Status.PodInfo.PodIP != "" {
		return Done
	}
	return Pending
}
