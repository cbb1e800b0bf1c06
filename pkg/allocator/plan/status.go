// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
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

// reportOn sets the sandboxes that count as claimed, and the message of an unfinished claim: what is
// in its way, if nothing can serve it as things are.
func reportOn(a *Assessment, p *claims.Problem) {
	status := &a.claim.Status
	if !a.State.Metadata.Behind {
		status.ObservedGeneration = a.claim.Generation
		if report := a.State.Metadata.Report; report != nil {
			report.setCondition(a.claim, a.State.Now)
		}
	}
	status.Phase = v1alpha1.SandboxClaimPhaseClaiming
	status.Sandboxes = a.held.listed
	status.ClaimedReplicas = int32(len(a.held.listed) + a.held.unlisted)
	status.Message = v1alpha1.ClaimingMessage(status.ClaimedReplicas, replicas(a.claim))
	if p != nil {
		status.Message = p.Message
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

// timeOut ends a claim whose time is up with what it has. lapse (expiry.go) ends one whose lifecycle is
// over.
func timeOut(claim *v1alpha1.SandboxClaim, now time.Time, elapsed time.Duration, p *claims.Problem) {
	have, want := claim.Status.ClaimedReplicas, replicas(claim)
	elapsed = elapsed.Round(time.Millisecond)
	message := v1alpha1.ClaimTimeoutMessage(elapsed, have, want)
	reason := v1alpha1.ReasonTimeoutReached
	if p != nil {
		message, reason = p.Message, p.Reason
	}
	end(claim, now, message)
	condition(claim, now, v1alpha1.ClaimConditionTimedOut, metav1.ConditionTrue, v1alpha1.ReasonClaimTimeoutReached,
		v1alpha1.ClaimTimeoutConditionMessage(elapsed, have, want))
	condition(claim, now, v1alpha1.ClaimConditionCompleted, metav1.ConditionTrue, reason, message)
	condition(claim, now, v1alpha1.ClaimConditionReady, metav1.ConditionFalse, reason, message)
}

// reject ends a claim that asks for what it cannot have, with what it has.
func reject(claim *v1alpha1.SandboxClaim, now time.Time, refused *RefusedError) {
	end(claim, now, refused.Message)
	condition(claim, now, v1alpha1.ClaimConditionCompleted, metav1.ConditionTrue, refused.Reason, refused.Message)
	condition(claim, now, v1alpha1.ClaimConditionReady, metav1.ConditionFalse, refused.Reason, refused.Message)
}

// Deleted returns what a claim has come to that was deleted before its end.
func Deleted(claim *v1alpha1.SandboxClaim, now time.Time) *v1alpha1.SandboxClaim {
	ended := *claim
	end(&ended, now, "The claim was deleted")
	return &ended
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
	entry := v1alpha1.ClaimedSandbox{Name: sb.Name, UID: sb.UID}
	if ip := sb.Status.PodInfo.PodIP; ip != "" {
		entry.PodIPs = []string{ip}
	}
	return entry
}

// replicas is claims.Replicas in the type of the API.
func replicas(claim *v1alpha1.SandboxClaim) int32 { return int32(claims.Replicas(claim)) }
