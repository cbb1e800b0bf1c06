// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Sandboxes that fail are replaced, and that has a bound: a claim whose runtimes all
// refuse it would otherwise use up its pool, and that of other claims. The number of those
// that failed is in the claim's status, and why the first of them did; so no server has to
// remember it.

const (
	// fewestFailures is how many sandboxes of any claim may fail, and failuresEach how many
	// for each that it asks for, where that is more.
	fewestFailures = 10
	failuresEach   = 3
)

// mayFail is how many sandboxes of a claim may fail before it gets no others.
func mayFail(claim *v1alpha1.SandboxClaim) int {
	return max(fewestFailures, failuresEach*claims.Replicas(claim))
}

// failure is a sandbox that failed while it was prepared.
type failure struct {
	sb *v1alpha1.Sandbox
	// setup is why its runtime could not be set up; nil if it failed otherwise.
	setup *claims.SetupError
}

// releaseFailed releases sandboxes that failed, as far as they fit into the transaction, and
// counts them.
func (a *Assessment) releaseFailed(failures []failure) {
	for _, f := range failures[:min(len(failures), a.State.Room)] {
		next := release(f.sb, a.claim.Spec.ReserveFailedSandbox, a.State.Now)
		each(a.features, func(r releaser) { r.release(a, next, f.setup) })
		f.sb = next
		a.held.released = append(a.held.released, next)
		a.claim.Status.FailedReplicas++
		if listed := a.claim.Status.Failures; len(listed) < claims.MaxFailures {
			a.claim.Status.Failures = append(slices.Clip(listed), v1alpha1.SandboxFailure{Name: next.Name, Message: claims.Cut(causeOf(f), claims.MaxFailureMessage)})
		}
	}
}

// causeOf is why a sandbox failed.
func causeOf(f failure) string {
	if f.setup != nil {
		return f.setup.Message
	}
	conditions := f.sb.Status.Conditions
	update := meta.FindStatusCondition(conditions, v1alpha1.SandboxConditionInplaceUpdate)
	ready := meta.FindStatusCondition(conditions, v1alpha1.SandboxConditionReady)
	why := "it was not ready in time"
	switch phase := f.sb.Status.Phase; {
	case phase == v1alpha1.SandboxFailed, phase == v1alpha1.SandboxSucceeded, phase == v1alpha1.SandboxTerminating:
		why = fmt.Sprintf("its phase is %s", phase)
	case update != nil && update.Status == metav1.ConditionFalse && update.Message != "":
		return update.Message
	}
	if ready != nil && ready.Status != metav1.ConditionTrue && ready.Message != "" {
		why += ", " + ready.Message
	}
	return why
}

// notSetUp is why a sandbox failed whose setup did not end in time.
func notSetUp() *claims.SetupError {
	return &claims.SetupError{
		Condition: v1alpha1.SandboxConditionRuntimeInitialized, Reason: v1alpha1.ReasonRuntimeInitFailed,
		Message: "its agent-runtime was not set up in time",
	}
}

// limitFailures refuses the claim any more sandboxes when too many have failed. One for all or
// nothing is refused as soon as it could not replace what it lacks.
func (a *Assessment) limitFailures() {
	failed, most, onTheWay := int(a.claim.Status.FailedReplicas), mayFail(a.claim), len(a.held.ready)+len(a.held.waiting)
	lacks := max(0, a.held.lacks(a.claim)-onTheWay)
	if a.State.Refused != nil || !claims.ReplacesFailed(a.claim) || failed < most && (!claims.AllOrNothing(a.claim) || failed+onTheWay+lacks <= most) {
		return
	}
	message := fmt.Sprintf("%d sandboxes failed in preparation, so the claim gets no others", failed)
	if listed := a.claim.Status.Failures; len(listed) > 0 {
		message += "; the first is " + claims.FailureMessage(&listed[0])
	}
	a.State.Refused = &RefusedError{Reason: v1alpha1.ReasonTooManyFailures, Message: message}
}

// credit returns how many more sandboxes a claim may have, so that no more than mayFail can fail.
func credit(claim *v1alpha1.SandboxClaim, onTheWay int) int {
	if !claims.ReplacesFailed(claim) {
		return max(0, claims.Replicas(claim)-onTheWay)
	}
	return max(0, mayFail(claim)-int(claim.Status.FailedReplicas)-onTheWay)
}
