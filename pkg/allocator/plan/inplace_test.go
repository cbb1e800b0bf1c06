// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

func inPlace(c *v1alpha1.SandboxClaim) {
	c.Spec.InplaceUpdate = &v1alpha1.SandboxClaimInplaceUpdateOptions{Image: "two"}
}

func reserves(c *v1alpha1.SandboxClaim) { c.Spec.ReserveFailedSandbox = true }

// lacksImage is a sandbox that could not be given the image.
func lacksImage(sb *v1alpha1.Sandbox) {
	setResized(sb, "no such image")
	setReady(sb, metav1.ConditionFalse)
	setImageFailed(sb)
}

// TestImageThatFails: a sandbox without the image is let go at once, or kept, and another
// takes its place while time remains. The claim tells why.
func TestImageThatFails(t *testing.T) {
	const why = "False Failed: 1 of 1 sandboxes could not be updated in place: a: no such image"
	before := func(c *v1alpha1.SandboxClaim) {
		condition(c, birth, v1alpha1.ClaimConditionInplaceUpdate, metav1.ConditionFalse, v1alpha1.ReasonFailed, "before")
	}
	tests := map[string]struct {
		claim   []change
		held    held
		found   []Candidate
		expired bool
		// told is the condition InplaceUpdate.
		told             string
		released, bound  int
		ends, keptFailed bool
	}{
		"let go": {claim: []change{of(1), inPlace}, held: lacksImage, told: why, released: 1},
		"kept":   {claim: []change{of(1), inPlace, reserves}, held: lacksImage, told: why, released: 1, keptFailed: true},
		"replaced": {
			claim: []change{of(1), inPlace}, held: lacksImage, released: 1, bound: 1,
			found: []Candidate{{Sandbox: stocked("b"), Template: pooled.Spec.Template, InPlace: inplace.Goal{Image: true}}},
			told:  "False InplaceUpdating: Updating 1 sandboxes in place",
		},
		"let go at the end":       {claim: []change{of(1), inPlace}, held: lacksImage, expired: true, told: why, released: 1, ends: true},
		"kept at the end":         {claim: []change{of(1), inPlace, reserves}, held: lacksImage, expired: true, told: why, released: 1, ends: true, keptFailed: true},
		"and nothing came":        {claim: []change{of(1), inPlace, before}, expired: true, told: "False Failed: before", ends: true},
		"and the next goes on":    {claim: []change{of(1), inPlace, before}, held: isResizing, told: "False InplaceUpdating: Updating 1 sandboxes in place"},
		"and the next is well":    {claim: []change{of(1), inPlace, before}, held: isResized, told: "True Succeeded: Updated 1 sandboxes in place", ends: true},
		"and the next is made":    {claim: []change{of(1), inPlace, before}, held: isReady, ends: true},
		"a resize that fails":     {claim: []change{of(1), inPlace}, held: couldNotBeResized, told: "False Failed: 1 of 1 sandboxes could not be updated in place: a: no room", ends: true},
		"nothing was asked for":   {claim: []change{of(1), before}, expired: true, ends: true},
		"the image comes to fail": {claim: []change{of(1), inPlace}, held: func(sb *v1alpha1.Sandbox) { isResizing(sb); setImageFailed(sb) }, told: "False InplaceUpdating: Updating 1 sandboxes in place"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.claim...)
			if tc.held != nil {
				s.holds(t, "a", tc.held)
			}
			if tc.expired {
				expire(&s)
			}
			a := Assess(s)
			marks := marksOf(t, s.Claim)
			p, err := a.Next(Offer{Candidates: tc.found}, marks)
			if err != nil {
				t.Fatal(err)
			}
			told := ""
			if c := meta.FindStatusCondition(p.Claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate); c != nil {
				told = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
			if told != tc.told || len(p.Released) != tc.released || len(p.Bound) != tc.bound || p.Ends() != tc.ends {
				t.Errorf("says %q, releases %d, binds %d, ends %v", told, len(p.Released), len(p.Bound), p.Ends())
			}
			for _, sb := range p.Released {
				kept := sb.Labels[v1alpha1.LabelReservedFailedSandbox] == "true"
				if kept != tc.keptFailed || (sb.Spec.ShutdownTime != nil) == kept || !inplace.LacksImage(sb) {
					t.Errorf("released as %+v", sb)
				}
			}
			if timedOut := meta.IsStatusConditionTrue(p.Claim.Status.Conditions, v1alpha1.ClaimConditionTimedOut); timedOut != tc.expired {
				t.Errorf("timed out: %v", timedOut)
			}
		})
	}
}

// TestBindingForAnImage: with what is known of the cpu, and without what an earlier claim
// left.
func TestBindingForAnImage(t *testing.T) {
	from := stocked("a")
	from.Annotations = map[string]string{v1alpha1.AnnotationInplaceUpdate: `{"cpu":true}`}
	setImageFailed(from)
	c := Candidate{Sandbox: from, Template: from.Spec.Template, InPlace: inplace.Goal{Image: true}, ResizeFailed: errors.New("no goal")}
	sb, waits, err := marksOf(t, claimOf(inPlace)).bind(&c, birth)
	if err != nil {
		t.Fatal(err)
	}
	if got := inplace.GoalOf(sb); !waits || !inplace.InProgress(sb) || inplace.LacksImage(sb) || got != (inplace.Goal{Image: true, Failed: "no goal"}) {
		t.Errorf("waits %v, %+v, %+v", waits, got, sb.Status.Conditions)
	}
	if until := readyBy(claimOf(nil), sb); until.Sub(birth) != v1alpha1.DefaultWaitReadyTimeout+time.Second {
		t.Errorf("has time until %v", until)
	}
	c.InPlace, c.ResizeFailed = inplace.Goal{}, nil
	if sb, waits, err = marksOf(t, claimOf(nil)).bind(&c, birth); err != nil || waits || len(sb.Annotations[v1alpha1.AnnotationInplaceUpdate]) > 0 {
		t.Errorf("a claim that asks for nothing: waits %v, %v, %v", waits, sb.Annotations, err)
	}
}
