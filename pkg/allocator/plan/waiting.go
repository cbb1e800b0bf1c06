// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// tellOfWait adds to the message of a claim that lacks sandboxes what it waits for, or has
// waited for, and why that cannot start. left is how many are neither its own nor about to
// be made for it.
func (a *Assessment) tellOfWait(p *Plan, o *Offer, left int) {
	status := &a.claim.Status
	switch {
	case p.Problem != nil || a.Refused != nil:
		return // which the message says
	case !claims.Unfinished(a.claim):
		if int(status.ClaimedReplicas) < claims.Replicas(a.claim) {
			status.Message += claims.EndMessage(claims.CannotStart(a.Eligible.Pools))
		}
		return
	}
	if n, cause := a.startProblem(p); n > 0 {
		status.Message += claims.StartMessage(n, cause)
	}
	if left > 0 && len(a.Eligible.Pools) > 0 && (p.Broken != nil || !a.makes()) {
		status.Message += claims.WaitMessage(left, poolOf(&a.Eligible), o.Line, claims.CannotStart(a.Eligible.Pools))
	}
}

// startProblem is how many sandboxes the claim holds that are starting after a plan, and why
// the first of them does not, as far as it is known of any.
func (a *Assessment) startProblem(p *Plan) (n int, cause string) {
	for _, sb := range a.waiting {
		if cause = claims.StartProblem(sb); cause != "" {
			break
		}
	}
	return len(a.waiting) + len(p.Made), cause
}

// poolOf names what a claim waits for.
func poolOf(e *claims.Eligible) string {
	if e.OfTemplate {
		return "SandboxTemplate " + e.Name
	}
	return "SandboxSet " + e.Name
}

// tellWhyShort lets the conditions of a claim that has ended short say what its message
// does.
func tellWhyShort(claim *v1alpha1.SandboxClaim) {
	if claims.Unfinished(claim) {
		return
	}
	for _, kind := range []string{v1alpha1.ClaimConditionCompleted, v1alpha1.ClaimConditionReady} {
		c := meta.FindStatusCondition(claim.Status.Conditions, kind)
		if c != nil && c.Reason != v1alpha1.ReasonAllReplicasClaimed && (kind == v1alpha1.ClaimConditionCompleted || c.Status == metav1.ConditionFalse) {
			c.Message = claim.Status.Message
		}
	}
}

// OnlyTellsOfWait reports whether the plan changes nothing but what the message says of the
// claim's wait.
func (p *Plan) OnlyTellsOfWait() bool {
	if p.Binds() || p.Ends() {
		return false
	}
	was, is := p.before.Status, p.Claim.Status // of which the lists are shared, and not changed
	was.Message, is.Message = claims.WithoutWait(was.Message), claims.WithoutWait(is.Message)
	return apiequality.Semantic.DeepEqual(was, is)
}
