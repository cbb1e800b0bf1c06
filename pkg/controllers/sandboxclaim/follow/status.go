// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	agents "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// recoveredMessage is the message of Ready of a claim that was not ready for a while.
const recoveredMessage = "Every sandbox is ready"

// isFollowed reports whether the status of a claim follows its sandboxes.
func isFollowed(claim *v1alpha1.SandboxClaim) bool {
	return claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted && claim.DeletionTimestamp == nil
}

// conditionsOf returns what the conditions of a claim that is Completed should be.
//
//   - An expired claim keeps its conditions, because its sandboxes are deleted as a result. Only
//     observedGeneration is updated.
//   - Finished, once true, stays as it is, and so does its time. One of the E2B API is
//     Finished when its sandbox is gone, too: nothing else ends such a claim.
//   - One that ended with less than it asked for is never ready, and says why it ended.
func conditionsOf(claim *v1alpha1.SandboxClaim, all []member, now time.Time) []metav1.Condition {
	conditions := slices.Clone(claim.Status.Conditions)
	if v1alpha1.HasExpired(claim) {
		observe(conditions, claim)
		return conditions
	}
	if claims.Continuous(claim) {
		return agentConditions(claim, all, now)
	}
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), // as it is stored
		})
	}
	t := count(all)
	if reason, message, ok := t.finished(v1alpha1.IsE2BClaim(claim)); ok && !meta.IsStatusConditionTrue(conditions, v1alpha1.ClaimConditionFinished) {
		set(v1alpha1.ClaimConditionFinished, metav1.ConditionTrue, reason, message)
	}
	reason, message, short := endedShort(claim)
	switch ready := meta.FindStatusCondition(conditions, v1alpha1.ClaimConditionReady); {
	case short:
		set(v1alpha1.ClaimConditionReady, metav1.ConditionFalse, reason, message)
	case t.first.rank != well:
		set(v1alpha1.ClaimConditionReady, metav1.ConditionFalse, t.first.reason, t.message())
	case ready == nil || ready.Status != metav1.ConditionTrue || ready.Reason != v1alpha1.ReasonAllReplicasClaimed:
		set(v1alpha1.ClaimConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllReplicasClaimed, recoveredMessage)
	}
	return conditions
}

// observe sets observedGeneration of the conditions that have one to the generation of a claim,
// once the status has reached it. No other controller updates a claim that has expired.
func observe(conditions []metav1.Condition, claim *v1alpha1.SandboxClaim) {
	if claim.Status.ObservedGeneration != claim.Generation {
		return
	}
	for i := range conditions {
		if c := &conditions[i]; c.ObservedGeneration > 0 {
			c.ObservedGeneration = claim.Generation
		}
	}
}

// endedShort reports whether a claim ended with less than it asked for, and why, as the
// condition Completed says.
func endedShort(claim *v1alpha1.SandboxClaim) (reason, message string, short bool) {
	completed := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionCompleted)
	switch wanted := ptr.Deref(claim.Spec.Replicas, v1alpha1.DefaultClaimReplicas); {
	case completed != nil:
		return completed.Reason, completed.Message, completed.Reason != v1alpha1.ReasonAllReplicasClaimed
	case claim.Status.ClaimedReplicas < wanted: // a client has taken the condition away
		return v1alpha1.ReasonTimeoutReached, fmt.Sprintf("Claimed %d/%d sandboxes", claim.Status.ClaimedReplicas, wanted), true
	}
	return "", "", false
}

// isRepeatable reports whether a process in a sandbox can repeat a change of the claim's status
// without end. These are changes of Ready because of the readiness of sandboxes, and changes of
// addresses. A sandbox that ends, disappears or is paused, and an edit of the claim, cannot be
// repeated like that.
func isRepeatable(claim *v1alpha1.SandboxClaim, conditions []metav1.Condition, sandboxes int) bool {
	if sandboxes != len(claim.Status.Sandboxes) || len(conditions) != len(claim.Status.Conditions) {
		return false
	}
	for i := range conditions {
		was, is := meta.FindStatusCondition(claim.Status.Conditions, conditions[i].Type), &conditions[i]
		if was == nil || was.ObservedGeneration != is.ObservedGeneration {
			return false
		}
		if was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message {
			continue
		}
		if is.Type != v1alpha1.ClaimConditionReady || isLifecycleReason(was.Reason) || isLifecycleReason(is.Reason) {
			return false
		}
	}
	return true
}

// isLifecycleReason reports whether a reason of Ready means that a sandbox has ended, disappeared or
// is paused.
func isLifecycleReason(reason string) bool {
	switch reason {
	case v1alpha1.ReasonSandboxMissing, v1alpha1.ReasonPodFailed, v1alpha1.ReasonPodSucceeded,
		v1alpha1.ReasonSandboxPaused, v1alpha1.ReasonSandboxExpired, agents.ReasonSandboxSuspended:
		return true
	}
	return false
}
