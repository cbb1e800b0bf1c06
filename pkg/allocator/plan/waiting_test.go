// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// stuckPool is served, with a set whose sandboxes cannot start.
func stuckPool() claims.Eligible {
	e := served()
	e.Pools[0].Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.SetConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSandboxesCannotStart,
		Message: "3 sandboxes of SandboxSet pool cannot start: Unschedulable: 0/4 nodes",
	}}
	return e
}

// TestWaitReport: a claim says where it stands and why what it waits for cannot start, and
// at its end why it is short, in Ready as well.
func TestWaitReport(t *testing.T) {
	unscheduled := stocked("x")
	unscheduled.Annotations = map[string]string{
		v1alpha1.AnnotationStarting: "true", v1alpha1.AnnotationOwner: "claim-uid",
		v1alpha1.AnnotationClaimTimestamp: birth.Format(time.RFC3339),
	}
	unscheduled.Status.Phase, unscheduled.Status.Conditions = v1alpha1.SandboxPending, []metav1.Condition{{
		Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnschedulable, Message: "0/4 nodes",
	}}
	const cause = "3 sandboxes of SandboxSet pool cannot start: Unschedulable: 0/4 nodes"
	for name, tc := range map[string]struct {
		claim    change
		eligible claims.Eligible
		held     []*v1alpha1.Sandbox
		after    time.Duration
		want     string
	}{
		"the pool": {of(2), served(), nil, passed, "Claiming sandboxes: 0/2 claimed; waits for 2 sandboxes of SandboxSet pool"},
		"the pool cannot start": {
			of(2), stuckPool(), nil, passed,
			"Claiming sandboxes: 0/2 claimed; waits for 2 sandboxes of SandboxSet pool: " + cause,
		},
		"fresh ones are made": {func(c *v1alpha1.SandboxClaim) { of(2)(c); orMade(c) }, stuckPool(), nil, passed, "Claiming sandboxes: 0/2 claimed"},
		"what it holds cannot start": {
			func(c *v1alpha1.SandboxClaim) { of(1)(c); orMade(c) }, served(), []*v1alpha1.Sandbox{unscheduled}, passed,
			"Claiming sandboxes: 0/1 claimed; 1 sandbox is being started: Unschedulable: 0/4 nodes",
		},
		"its time is up": {of(2), stuckPool(), nil, time.Minute, "Timeout reached after 1m0s, claimed 0/2 sandboxes; " + cause},
	} {
		t.Run(name, func(t *testing.T) {
			claim := claimOf(tc.claim)
			begin(claim, birth)
			a := Assess(State{
				Claim: claim, Start: birth, Held: tc.held, Eligible: tc.eligible, Room: 127, Making: Making{Allowed: true}, Now: birth.Add(tc.after),
			})
			marks, err := NewMarks(claim)
			if err != nil {
				t.Fatal(err)
			}
			p, err := a.Next(Offer{}, marks)
			if err != nil {
				t.Fatal(err)
			}
			status := p.Claim.Status
			if status.Message != tc.want {
				t.Errorf("says %q, want %q", status.Message, tc.want)
			}
			ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ClaimConditionReady)
			if ended := p.Ends(); ended != (ready != nil) || ended && (ready.Status != metav1.ConditionFalse || ready.Message != tc.want) {
				t.Errorf("it ends: %t, and Ready is %+v", ended, ready)
			}
			if p.Ends() {
				return
			}
			again, err := Assess(State{
				Claim: p.Claim, Start: birth, Held: tc.held, Eligible: tc.eligible, Room: 127, Making: Making{Allowed: true}, Now: birth.Add(tc.after),
			}).Next(Offer{}, marks)
			if err != nil || again.Changes() {
				t.Errorf("without news it says %q: %v", again.Claim.Status.Message, err)
			}
		})
	}
}

// TestEveryEndSaysReady: a claim that is Completed has the condition Ready, True only if it
// has all it asked for.
func TestEveryEndSaysReady(t *testing.T) {
	gone := &claims.Problem{Message: "SandboxSet pool not found in namespace ns", Reason: v1alpha1.ReasonSandboxSetNotFound}
	for name, end := range map[string]func(c *v1alpha1.SandboxClaim){
		"complete":  func(c *v1alpha1.SandboxClaim) { complete(c, birth) },
		"timed out": func(c *v1alpha1.SandboxClaim) { timeOut(c, birth, time.Minute, nil) },
		"no set":    func(c *v1alpha1.SandboxClaim) { timeOut(c, birth, time.Minute, gone) },
		"refused": func(c *v1alpha1.SandboxClaim) {
			reject(c, birth, &RefusedError{Reason: v1alpha1.ReasonTooManyFailures, Message: "no"})
		},
		"expired": func(c *v1alpha1.SandboxClaim) { lapse(c, birth) },
	} {
		claim := claimOf(of(2))
		begin(claim, birth)
		end(claim)
		want := metav1.ConditionFalse
		if name == "complete" {
			want = metav1.ConditionTrue
		}
		ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionReady)
		if claims.Unfinished(claim) || ready == nil || ready.Status != want || ready.Reason == "" {
			t.Errorf("%s: Ready is %+v", name, ready)
		}
	}
}
