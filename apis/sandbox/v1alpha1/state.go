// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State is what a sandbox is good for. It is derived and never stored.
type State string

const (
	// StateCreating means that the sandbox will be of use soon.
	StateCreating State = "creating"
	// StateAvailable means that the sandbox waits in its pool to be claimed.
	StateAvailable State = "available"
	// StateRunning means that the sandbox is in use.
	StateRunning State = "running"
	// StatePaused means that the sandbox is in use, but does not run now.
	StatePaused State = "paused"
	// StateDead means that the sandbox will not be of use again.
	StateDead State = "dead"
)

// StateOf derives the state of a sandbox. The first rule that fits wins:
//
//  1. being deleted                        dead
//  2. spec.shutdownTime reached            dead
//  3. Pending                              creating
//  4. Succeeded, Failed or Terminating     dead
//  5. in a pool, Ready, and its
//     agent-runtime has a token            available
//  6. in a pool otherwise                  creating (also with an empty phase)
//  7. Running, spec.paused                 paused
//  8. Running, Ready                       running
//  9. Running, not Ready                   dead
//  10. any other phase                     paused (also with an empty phase)
//
// RuntimeInitialized is False where the agent-runtime of a sandbox in a pool has no access token
// yet: until it has, it takes commands from everyone.
//
// Rule 2 depends on the clock: the state of a sandbox with a shutdownTime can
// change without a change of the object. See IsInPool for what a pool is.
func StateOf(sandbox *Sandbox, now time.Time) State {
	if sandbox.DeletionTimestamp != nil {
		return StateDead
	}
	if t := sandbox.Spec.ShutdownTime; t != nil && !now.Before(t.Time) {
		return StateDead
	}
	switch sandbox.Status.Phase {
	case SandboxPending:
		return StateCreating
	case SandboxSucceeded, SandboxFailed, SandboxTerminating:
		return StateDead
	}
	ready := meta.IsStatusConditionTrue(sandbox.Status.Conditions, SandboxConditionReady)
	if IsInPool(sandbox) {
		if ready && !meta.IsStatusConditionFalse(sandbox.Status.Conditions, SandboxConditionRuntimeInitialized) {
			return StateAvailable
		}
		return StateCreating
	}
	if sandbox.Status.Phase != SandboxRunning {
		return StatePaused
	}
	switch {
	case sandbox.Spec.Paused:
		return StatePaused
	case ready:
		return StateRunning
	default:
		return StateDead
	}
}

// IsInPool reports whether a sandbox belongs to a pool: its controller is a
// SandboxSet. Labels say so too, but users can write them, and a claim makes its
// sandbox its own by taking the owner reference away.
func IsInPool(sandbox *Sandbox) bool {
	return PoolOf(sandbox) != nil
}

// PoolOf is the reference to the SandboxSet, or in other words SandboxWarmPool, that
// controls a sandbox, or nil.
func PoolOf(sandbox *Sandbox) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(sandbox)
	if owner == nil || OwnerKind(owner) != "SandboxSet" {
		return nil
	}
	return owner
}
