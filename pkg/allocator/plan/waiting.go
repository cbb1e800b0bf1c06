// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// waitingFor returns what an unfinished claim waits for after a plan; nil if for nothing. left is
// how many sandboxes are neither its own nor about to be made for it, and found how many were
// found.
func waitingFor(a *Assessment, p *Plan, left, found int) *v1alpha1.ClaimWaiting {
	var w v1alpha1.ClaimWaiting
	if p.Problem != nil {
		w.Reason = p.Problem.Reason
	}
	if p.Broken != nil && left > 0 {
		w.CreateProblem = claims.CreateProblem(p.Broken)
	}
	if n, cause := startProblem(a, p); cause != "" { // else each sandbox that starts would change the status
		w.Starting, w.StartProblem = int32(n), cause
	}
	isShort := left > 0 && found < a.missing && !a.expired
	if isShort && a.State.Refused == nil && len(a.State.Eligible.Pools) > 0 && (p.Broken != nil || !a.makes()) {
		w.Replicas, w.PoolProblem = int32(left), claims.CannotStart(a.State.Eligible.Pools)
	}
	if w == (v1alpha1.ClaimWaiting{}) {
		return nil
	}
	return &w
}

// describe writes into the status of a claim that is unfinished, or ended short, what it waits for, or
// why it is short, and which sandboxes failed.
func describe(a *Assessment, p *Plan, left, found int) {
	status, goesOn := &a.claim.Status, claims.Unfinished(a.claim)
	if goesOn {
		status.Waiting = waitingFor(a, p, left, found)
	}
	switch {
	case p.Problem != nil || a.State.Refused != nil: // which the message says
	case status.Waiting != nil:
		status.Message += claims.WaitingMessage(status.Waiting, poolOf(&a.State.Eligible))
	case !goesOn:
		status.Message += claims.EndMessage(claims.CannotStart(a.State.Eligible.Pools))
	}
	if goesOn || a.State.Refused == nil {
		status.Message += claims.FailuresMessage(status)
	}
	if p.Broken != nil && left > 0 {
		status.Message += claims.CreateProblemMessage(claims.CreateProblem(p.Broken))
	}
	if !goesOn {
		reportShortage(a.claim)
	}
}

// startProblem is how many sandboxes the claim holds that are starting after a plan, and why
// the first of them does not, as far as it is known of any.
func startProblem(a *Assessment, p *Plan) (n int, cause string) {
	for _, sb := range a.held.waiting {
		if cause = claims.StartProblem(sb); cause != "" {
			break
		}
	}
	return len(a.held.waiting) + len(p.Made), cause
}

// poolOf names what a claim waits for.
func poolOf(e *claims.Eligible) string {
	if e.OfTemplate {
		return "SandboxTemplate " + e.Name
	}
	return "SandboxSet " + e.Name
}

// reportShortage lets the conditions of a claim that has ended short say what its message
// does.
func reportShortage(claim *v1alpha1.SandboxClaim) {
	for _, kind := range []string{v1alpha1.ClaimConditionCompleted, v1alpha1.ClaimConditionReady} {
		c := meta.FindStatusCondition(claim.Status.Conditions, kind)
		if c != nil && c.Reason != v1alpha1.ReasonAllReplicasClaimed && (kind == v1alpha1.ClaimConditionCompleted || c.Status == metav1.ConditionFalse) {
			c.Message = claim.Status.Message
		}
	}
}

// IsOnlyWaitReport reports whether the plan changes nothing but what the status says of the
// claim's wait.
func (p *Plan) IsOnlyWaitReport() bool {
	if p.ChangesSandboxes() || p.Ends() {
		return false
	}
	was, is := p.before.Status, p.Claim.Status // of which the lists are shared, and not changed
	before, after := ptr.Deref(was.Waiting, v1alpha1.ClaimWaiting{}), ptr.Deref(is.Waiting, v1alpha1.ClaimWaiting{})
	if before.Reason != after.Reason || before.CreateProblem != after.CreateProblem {
		return false
	}
	was.Message, is.Message, was.Waiting, is.Waiting = "", "", nil, nil
	return apiequality.Semantic.DeepEqual(was, is)
}
