// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// The texts and reasons of a claim's status are OpenKruise's: clients read them.

// begin sets the status that a claim starts with.
func begin(claim *v1alpha1.SandboxClaim, now time.Time) {
	start := metav1.NewTime(now)
	claim.Status = v1alpha1.SandboxClaimStatus{
		ObservedGeneration: claim.Generation,
		Phase:              v1alpha1.SandboxClaimPhaseClaiming,
		ClaimStartTime:     &start,
	}
}

// report sets the sandboxes that count as claimed (unlisted is how many more
// count that are not named), and the message for a claim that goes on: what is in
// its way, if nothing can serve it as things are.
func report(claim *v1alpha1.SandboxClaim, counted []v1alpha1.ClaimedSandbox, unlisted int, p *problem) {
	claim.Status.ObservedGeneration = claim.Generation
	claim.Status.Phase = v1alpha1.SandboxClaimPhaseClaiming
	claim.Status.Sandboxes = counted
	claim.Status.ClaimedReplicas = int32(len(counted) + unlisted)
	claim.Status.Message = v1alpha1.ClaimingMessage(claim.Status.ClaimedReplicas, replicas(claim))
	if p != nil {
		claim.Status.Message = p.message
	}
}

// complete ends a claim that has all it asked for.
func complete(claim *v1alpha1.SandboxClaim, now time.Time) {
	n := replicas(claim)
	end(claim, now, v1alpha1.ClaimedMessage(n, n))
	condition(claim, now, v1alpha1.ClaimConditionCompleted, metav1.ConditionTrue, v1alpha1.ReasonAllReplicasClaimed,
		v1alpha1.ClaimedConditionMessage(n))
	condition(claim, now, v1alpha1.ClaimConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllReplicasClaimed,
		"Every sandbox was ready when it was counted")
}

// timeOut ends a claim whose time is up with what it has.
func timeOut(claim *v1alpha1.SandboxClaim, now time.Time, elapsed time.Duration, p *problem) {
	have, want := claim.Status.ClaimedReplicas, replicas(claim)
	elapsed = elapsed.Round(time.Millisecond)
	message := v1alpha1.ClaimTimeoutMessage(elapsed, have, want)
	reason := v1alpha1.ReasonTimeoutReached
	if p != nil {
		message, reason = p.message, p.reason
	}
	end(claim, now, message)
	condition(claim, now, v1alpha1.ClaimConditionTimedOut, metav1.ConditionTrue, v1alpha1.ReasonClaimTimeoutReached,
		v1alpha1.ClaimTimeoutConditionMessage(elapsed, have, want))
	condition(claim, now, v1alpha1.ClaimConditionCompleted, metav1.ConditionTrue, reason, message)
	condition(claim, now, v1alpha1.ClaimConditionReady, metav1.ConditionFalse, reason, message)
}

// unmade adds to the message of a claim that lacks sandboxes why no fresh ones are
// made for it.
func unmade(claim *v1alpha1.SandboxClaim, broken error) {
	claim.Status.Message += "; no fresh sandboxes can be made: " + broken.Error()
}

func end(claim *v1alpha1.SandboxClaim, now time.Time, message string) {
	done := metav1.NewTime(now)
	claim.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted
	claim.Status.Message = message
	claim.Status.CompletionTime = &done
}

// condition sets a condition of a claim. As in OpenKruise it has no generation of
// its own: Completed stays true whatever changes in the spec later.
func condition(claim *v1alpha1.SandboxClaim, now time.Time, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{
		Type:               kind,
		Status:             status,
		LastTransitionTime: metav1.NewTime(now),
		Reason:             reason,
		Message:            message,
	})
}

// claimed is how a claim's status names one of its sandboxes.
func claimed(sb *v1alpha1.Sandbox) v1alpha1.ClaimedSandbox {
	entry := v1alpha1.ClaimedSandbox{Name: sb.Name}
	if ip := sb.Status.PodInfo.PodIP; ip != "" {
		entry.PodIPs = []string{ip}
	}
	return entry
}

// replicas: absent means one, which the defaults have filled in.
func replicas(claim *v1alpha1.SandboxClaim) int32 {
	return ptr.Deref(claim.Spec.Replicas, 1)
}

func atomicClaim(claim *v1alpha1.SandboxClaim) bool {
	return claim.Spec.Allocation == v1alpha1.AllocationAllOrNothing
}

// createsOnNoStock: absent means true, except where the defaults said otherwise.
func createsOnNoStock(claim *v1alpha1.SandboxClaim) bool {
	return ptr.Deref(claim.Spec.CreateOnNoStock, true)
}
