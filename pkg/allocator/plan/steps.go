// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Progress is how far a step is.
type Progress int

const (
	// Done means that there is nothing left to do.
	Done Progress = iota
	// Pending means that the step may still come to an end.
	Pending
	// Failed means that the step has failed for good.
	Failed
)

// step is something that has to happen to a sandbox after a claim holds it and
// before it counts. What has to be done, and how far it is, is written on the sandbox
// itself, so that any controller and any server can go on from there. A new step is a
// file of its own and an entry in steps.
type step interface {
	// begin notes on a sandbox of a pool that is about to be bound, and is ready, what
	// has to be done, and reports whether there is anything.
	begin(sb *v1alpha1.Sandbox, c *Candidate, now time.Time) bool
	// progress is how far the step is with a sandbox that the claim holds.
	progress(sb *v1alpha1.Sandbox, now time.Time) Progress
}

// steps are in the order in which they are looked at.
var steps = []step{readiness{}, resize{}}

// progressOf is how far a sandbox is with all steps: a failure decides, and then
// what is pending.
func progressOf(sb *v1alpha1.Sandbox, now time.Time) Progress {
	all := Done
	for _, step := range steps {
		all = max(all, step.progress(sb, now))
	}
	return all
}

// IsReady reports whether a sandbox is done with all that comes before its runtime is set
// up.
func IsReady(sb *v1alpha1.Sandbox, now time.Time) bool { return progressOf(sb, now) == Done }

// readiness waits until a sandbox runs, is ready and has an address.
type readiness struct{}

func (readiness) begin(*v1alpha1.Sandbox, *Candidate, time.Time) bool { return false }

func (readiness) progress(sb *v1alpha1.Sandbox, now time.Time) Progress {
	switch sb.Status.Phase {
	case v1alpha1.SandboxFailed, v1alpha1.SandboxSucceeded, v1alpha1.SandboxTerminating:
		return Failed
	}
	state := v1alpha1.StateOf(sb, now)
	if state == v1alpha1.StateRunning && sb.Status.PodInfo.PodIP != "" {
		return Done
	}
	return Pending
}
