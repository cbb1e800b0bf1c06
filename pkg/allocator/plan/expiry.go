// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Deadline is when a claim ends with what it has: when its claimTimeout is over, its
// lifecycle, or the time of its sandboxes: more would be deleted as soon as it had them,
// one after the other, until the pool was empty. start is the start of the claim, by the
// clock that the deadline is compared with.
func Deadline(claim *v1alpha1.SandboxClaim, start time.Time) time.Time {
	timeout := timeoutOf(claim, start)
	if t := shutdownOf(claim); !t.IsZero() && t.Before(timeout) {
		return t
	}
	return timeout
}

// never is the timeout, in years, of a claim that does not time out.
const never = 100

// timeoutOf is when a claim times out. Other rules delete the sandbox of a claim that does not.
func timeoutOf(claim *v1alpha1.SandboxClaim, start time.Time) time.Time {
	if !claims.TimesOut(claim) {
		return start.AddDate(never, 0, 0)
	}
	end := start.Add(durationOr(claim.Spec.ClaimTimeout, v1alpha1.DefaultClaimTimeout))
	if t := claim.Spec.ShutdownTime; t != nil && t.Time.Before(end) {
		return t.Time
	}
	return end
}

// shutdownOf is when the lifecycle of a claim is over; zero if it never is.
func shutdownOf(claim *v1alpha1.SandboxClaim) time.Time {
	if l := claim.Spec.Lifecycle; l != nil && l.ShutdownTime != nil {
		return l.ShutdownTime.Time
	}
	return time.Time{}
}

// IsExpired reports whether the lifecycle of a claim is over.
func IsExpired(claim *v1alpha1.SandboxClaim, now time.Time) bool {
	t := shutdownOf(claim)
	return !t.IsZero() && !now.Before(t)
}

// lapse ends a claim whose lifecycle was over before it had all that it asked for.
func lapse(claim *v1alpha1.SandboxClaim, now time.Time) {
	message := fmt.Sprintf("Claim expired. Claimed %d/%d sandboxes", claim.Status.ClaimedReplicas, replicas(claim))
	end(claim, now, message)
	condition(claim, now, v1alpha1.ClaimConditionCompleted, metav1.ConditionTrue, v1alpha1.ReasonClaimExpired, message)
	condition(claim, now, v1alpha1.ClaimConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClaimExpired, message)
}
