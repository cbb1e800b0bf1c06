// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// E2BState is the state of a sandbox in the E2B API, which has two states. It derives from v1alpha1.State,
// the state for users of Kubernetes. routes.State is the state for traffic.
type E2BState string

// The states. A sandbox that has ended or is being deleted has none: it is not found.
const (
	StateRunning E2BState = "running"
	StatePaused  E2BState = "paused"
	StateGone    E2BState = ""
)

// StateOf returns the observed state of a sandbox, whatever its spec asks for. A sandbox is
// running if it can be used now. One that is paused, being paused, being resumed, starting or not
// ready is reported as paused, so that clients connect to it, which waits until it can be used.
func StateOf(sb *v1alpha1.Sandbox, now time.Time) E2BState {
	switch {
	case isGone(sb, now):
		return StateGone
	case v1alpha1.StateOf(sb, now) == v1alpha1.StateRunning:
		return StateRunning
	}
	return StatePaused
}

// isGone reports whether a sandbox has ended, or is being deleted or recycled.
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

// IsPaused reports whether the pause of a sandbox is complete: its pod is gone, and no
// client has asked to resume it.
func IsPaused(sb *v1alpha1.Sandbox) bool {
	return sb.Spec.Paused && sb.Status.Phase == v1alpha1.SandboxPaused &&
		meta.IsStatusConditionTrue(sb.Status.Conditions, v1alpha1.SandboxConditionPaused)
}

// IsStarted reports whether the pod of a sandbox runs, ready or not, and no pause is asked for.
// The timeout of such a sandbox can be changed.
func IsStarted(sb *v1alpha1.Sandbox) bool {
	return !sb.Spec.Paused && sb.Status.Phase == v1alpha1.SandboxRunning
}

// SetupFailure returns why the setup of a sandbox that runs has failed after a resume or a restart. It is
// empty if it has not failed.
func SetupFailure(sb *v1alpha1.Sandbox) string {
	for _, setup := range []struct{ condition, what string }{
		{v1alpha1.SandboxConditionRuntimeInitialized, "its agent-runtime could not be set up"},
		{v1alpha1.SandboxConditionVolumesMounted, "its volumes could not be mounted"},
	} {
		c := meta.FindStatusCondition(sb.Status.Conditions, setup.condition)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonFailed {
			continue
		}
		if c.Message == "" {
			return setup.what
		}
		return setup.what + ": " + c.Message
	}
	return ""
}
