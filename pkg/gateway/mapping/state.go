// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// State is the state of a sandbox in the E2B API, which has two states.
type State string

// The states. A sandbox that has ended or is being deleted has none: it is not found.
const (
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateGone    State = ""
)

// StateOf returns the state that a sandbox is in, whatever state its spec asks for. It is
// running if it can be used now. A sandbox that cannot be used is paused to clients, who
// connect to it and so wait until it can: it is paused, being paused, being resumed, or not
// ready.
func StateOf(sb *v1alpha1.Sandbox, now time.Time) State {
	switch {
	case isGone(sb, now):
		return StateGone
	case v1alpha1.StateOf(sb, now) == v1alpha1.StateRunning:
		return StateRunning
	}
	return StatePaused
}

func isGone(sb *v1alpha1.Sandbox, now time.Time) bool {
	if sb.DeletionTimestamp != nil || sb.Spec.ShutdownTime != nil && !now.Before(sb.Spec.ShutdownTime.Time) {
		return true
	}
	switch sb.Status.Phase {
	case v1alpha1.SandboxSucceeded, v1alpha1.SandboxFailed, v1alpha1.SandboxTerminating, v1alpha1.SandboxRecycling:
		return true
	}
	return false
}

// IsPaused reports whether the pause of a sandbox is complete: its pod is gone, and it is
// not to be resumed.
func IsPaused(sb *v1alpha1.Sandbox) bool {
	return sb.Spec.Paused && sb.Status.Phase == v1alpha1.SandboxPaused &&
		meta.IsStatusConditionTrue(sb.Status.Conditions, v1alpha1.SandboxConditionPaused)
}

// IsStarted reports whether a sandbox is to run and its pod does, ready or not. Then the end
// of its spec is that of its timeout, and can be moved.
func IsStarted(sb *v1alpha1.Sandbox) bool {
	return !sb.Spec.Paused && sb.Status.Phase == v1alpha1.SandboxRunning
}
