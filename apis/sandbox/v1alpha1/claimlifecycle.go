// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What agent-sandbox says of the end of claims. Clients compare it.
const (
	// ClaimExpiredMessage is the message of Ready of a claim whose lifecycle is over.
	ClaimExpiredMessage = "Claim expired. Sandbox cleanup initiated."
	// SandboxMissingMessage is the message of Ready of a claim whose sandbox is gone. That
	// of a claim of several continues with their names.
	SandboxMissingMessage = "Sandbox does not exist"
	// PodSucceededMessage and PodFailedMessage are the messages of Finished of a claim of
	// one sandbox.
	PodSucceededMessage = "Pod completed successfully"
	PodFailedMessage    = "Pod failed"
)

// ReasonSandboxPaused goes with Ready false of a claim of which a sandbox is paused, or on
// its way to be or back.
const ReasonSandboxPaused = "SandboxPaused"

// neverTTL is the default of ttlAfterCompleted of a claim whose lifecycle says when it
// ends: the claim must be there by then.
const neverTTL = -time.Second

// TTLAfterCompletedOf returns how long a claim is kept after it is Completed; negative is
// for ever.
func TTLAfterCompletedOf(spec *SandboxClaimSpec) time.Duration {
	switch {
	case spec.TTLAfterCompleted != nil:
		return spec.TTLAfterCompleted.Duration
	case spec.Lifecycle != nil:
		return neverTTL
	}
	return DefaultTTLAfterCompleted
}

// LifecycleEnd returns when the lifecycle of a claim is over, and reports whether that is
// known: the earlier of its shutdownTime and of ttlSecondsAfterFinished after the claim
// finished.
func LifecycleEnd(claim *SandboxClaim) (time.Time, bool) {
	lifecycle := claim.Spec.Lifecycle
	if lifecycle == nil {
		return time.Time{}, false
	}
	var end time.Time
	if t := lifecycle.ShutdownTime; t != nil {
		end = t.Time
	}
	finished := meta.FindStatusCondition(claim.Status.Conditions, ClaimConditionFinished)
	if ttl := lifecycle.TTLSecondsAfterFinished; ttl != nil && finished != nil && finished.Status == metav1.ConditionTrue {
		if t := finished.LastTransitionTime.Add(time.Duration(*ttl) * time.Second); end.IsZero() || t.Before(end) {
			end = t
		}
	}
	return end, !end.IsZero()
}

// HasExpired reports whether a claim with a lifecycle says that it is over. That is final,
// whatever the lifecycle says later. If the lifecycle is removed, the claim is like any
// other again.
func HasExpired(claim *SandboxClaim) bool {
	ready := meta.FindStatusCondition(claim.Status.Conditions, ClaimConditionReady)
	return claim.Spec.Lifecycle != nil && ready != nil &&
		ready.Status == metav1.ConditionFalse && ready.Reason == ReasonClaimExpired
}

// IsBoundTo reports whether a sandbox is bound to this claim, and not to another of its
// name. One that failed and is kept for debugging counts too: see IsReservedFailed.
func IsBoundTo(sandbox, claim metav1.Object) bool {
	return sandbox.GetAnnotations()[AnnotationOwner] == string(claim.GetUID()) && sandbox.GetLabels()[LabelClaimName] == claim.GetName()
}

// IsReservedFailed reports whether a sandbox failed while it was prepared for a claim, and
// is kept for debugging. It stays when the claim ends.
func IsReservedFailed(sandbox metav1.Object) bool {
	return sandbox.GetLabels()[LabelReservedFailedSandbox] == ClaimedTrue
}
