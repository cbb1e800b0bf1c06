// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// A claim that is bound for as long as it exists is opened again when its sandbox is gone.
// Then it is like one that has just begun, but is not charged again. The next time that it may be
// opened follows from the last time, which is in its status. So sandboxes that fail again and again
// do not use up a pool, whichever server opens the claim.
const (
	// shortestRest is how long a claim that was opened again rests before the next time,
	// and longestRest how long at most.
	shortestRest = 10 * time.Second
	longestRest  = time.Minute
	// atBirth is how long after its creation a claim may begin that was never opened again.
	atBirth = 2 * time.Second
)

// CanRebind reports whether a claim gets another sandbox when its own is gone: it is bound for
// as long as it exists, is at its end, and has neither expired nor is it deleted.
func CanRebind(claim *v1alpha1.SandboxClaim, now time.Time) bool {
	if !claims.IsRebound(claim) || claims.Unfinished(claim) || claim.DeletionTimestamp != nil || v1alpha1.HasExpired(claim) {
		return false
	}
	end, ends := v1alpha1.LifecycleEnd(claim)
	return !ends || now.Before(end)
}

// HasLostSandbox reports whether the sandbox of a claim is no more its own. sb is the one of the
// name that the claim gives, nil if there is none. One that has ended, or has expired by
// itself, is still the claim's.
func HasLostSandbox(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) bool {
	if sb == nil || sb.DeletionTimestamp != nil || !v1alpha1.IsBoundTo(sb, claim) {
		return true
	}
	listed := claim.Status.Sandboxes
	return len(listed) > 0 && listed[0].Name == sb.Name && listed[0].UID != "" && listed[0].UID != sb.UID
}

// ReopenTime is when a claim that has lost its sandbox may get another. The rest grows with
// how long the claim has been losing them.
func ReopenTime(claim *v1alpha1.SandboxClaim) time.Time {
	began := claim.Status.ClaimStartTime
	if began == nil {
		return time.Time{} // a client rewrote the status
	}
	if !IsReopened(claim) {
		return time.Time{}
	}
	since := began.Sub(claim.CreationTimestamp.Time)
	return began.Add(min(max(since/2, shortestRest), longestRest))
}

// IsReopened reports whether a claim was reopened after it had lost its sandbox.
func IsReopened(claim *v1alpha1.SandboxClaim) bool {
	began := claim.Status.ClaimStartTime
	return began != nil && claims.IsRebound(claim) && began.Sub(claim.CreationTimestamp.Time) > atBirth
}

// Reopen returns what a claim becomes that has lost its sandbox: it holds nothing, and
// its work begins anew.
func Reopen(claim *v1alpha1.SandboxClaim, now time.Time) *v1alpha1.SandboxClaim {
	next := claim.DeepCopy()
	status := &next.Status
	status.Phase = v1alpha1.SandboxClaimPhaseClaiming
	status.Sandboxes, status.ClaimedReplicas, status.CompletionTime = nil, 0, nil
	status.FailedReplicas = 0
	status.ClaimStartTime = &metav1.Time{Time: now}
	status.Message = v1alpha1.ClaimingMessage(0, replicas(next))
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c metav1.Condition) bool {
		switch c.Type {
		case v1alpha1.ClaimConditionCompleted, v1alpha1.ClaimConditionTimedOut, v1alpha1.ClaimConditionFinished,
			v1alpha1.ClaimConditionMetadataSynced:
			return true
		}
		return false
	})
	delete(next.Annotations, v1alpha1.AgentAnnotationSandboxName)
	delete(next.Labels, v1alpha1.AgentAnnotationSandboxName)
	ready := claims.AgentReady(next, nil)
	ready.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&status.Conditions, ready)
	return next
}
