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
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

func inPlace(c *v1alpha1.SandboxClaim) {
	c.Spec.InplaceUpdate = &v1alpha1.SandboxClaimInplaceUpdateOptions{Image: "two"}
}

func reserves(c *v1alpha1.SandboxClaim) { c.Spec.ReserveFailedSandbox = true }

// lacksImage is a sandbox that could not be given the image.
func lacksImage(sb *v1alpha1.Sandbox) {
	sb.Spec.Template = podTemplateWith("two")
	setResized(sb, "no such image")
	setReady(sb, metav1.ConditionFalse)
	setImageFailed(sb)
}

// isPulling is a sandbox whose node has failed to pull the image, and tries again.
func isPulling(sb *v1alpha1.Sandbox) {
	sb.Spec.Template = podTemplateWith("two")
	sb.Annotations[v1alpha1.AnnotationInplaceUpdate] = `{"image":true}`
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionInplaceUpdate, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInplaceUpdating, Message: "not found",
	})
	setReady(sb, metav1.ConditionFalse)
}

// TestImageThatFails: a sandbox without the image is released at once, or kept, and no other
// takes its place as long as none has the image. The status of the claim says why.
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
		// reported is the condition InplaceUpdate.
		reported         string
		released, bound  int
		ends, keptFailed bool
	}{
		"let go": {claim: []change{of(1), inPlace}, held: lacksImage, reported: why, released: 1},
		"kept":   {claim: []change{of(1), inPlace, reserves}, held: lacksImage, reported: why, released: 1, keptFailed: true},
		"not replaced": {
			claim: []change{of(1), inPlace}, held: lacksImage, reported: why, released: 1,
			found: []Candidate{{Sandbox: stocked("b"), Template: pooled.Spec.Template, InPlace: inplace.Goal{Image: true}}},
		},
		"still pulled at the end": {
			claim: []change{of(1), inPlace}, held: isPulling, expired: true, released: 1, ends: true,
			reported: "False Failed: 1 of 1 sandboxes could not be updated in place: a: not found",
		},
		"let go at the end":       {claim: []change{of(1), inPlace}, held: lacksImage, expired: true, reported: why, released: 1, ends: true},
		"kept at the end":         {claim: []change{of(1), inPlace, reserves}, held: lacksImage, expired: true, reported: why, released: 1, ends: true, keptFailed: true},
		"and nothing came":        {claim: []change{of(1), inPlace, before}, expired: true, reported: "False Failed: before", ends: true},
		"and the next continues":  {claim: []change{of(1), inPlace, before}, held: isResizing, reported: "False InplaceUpdating: Updating 1 sandboxes in place"},
		"and the next is well":    {claim: []change{of(1), inPlace, before}, held: isResized, reported: "True Succeeded: Updated 1 sandboxes in place", ends: true},
		"and the next is made":    {claim: []change{of(1), inPlace, before}, held: isReady, ends: true},
		"a resize that fails":     {claim: []change{of(1), inPlace}, held: couldNotBeResized, reported: "False Failed: 1 of 1 sandboxes could not be updated in place: a: no room", ends: true},
		"nothing was asked for":   {claim: []change{of(1), before}, expired: true, ends: true},
		"the image comes to fail": {claim: []change{of(1), inPlace}, held: func(sb *v1alpha1.Sandbox) { isResizing(sb); setImageFailed(sb) }, reported: "False InplaceUpdating: Updating 1 sandboxes in place"},
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
			reported := ""
			if c := meta.FindStatusCondition(p.Claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate); c != nil {
				reported = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
			if reported != tc.reported || len(p.Released) != tc.released || len(p.Bound) != tc.bound || p.Ends() != tc.ends {
				t.Errorf("says %q, releases %d, binds %d, ends %v", reported, len(p.Released), len(p.Bound), p.Ends())
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

// podTemplateWith is a pod template whose first container has an image.
func podTemplateWith(image string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"containers":[{"name":"c","image":%q}]}}`, image)}
}

// templateFor is the pod template of the sandboxes that a claim gets.
func templateFor(claim *v1alpha1.SandboxClaim) *runtime.RawExtension {
	if asksForImage(claim) {
		return podTemplateWith(claim.Spec.InplaceUpdate.Image)
	}
	return pooled.Spec.Template
}

// TestImageIsTried: a claim that asks for an image gets one sandbox first, the others when
// that one counts, and none when it could not have the image.
func TestImageIsTried(t *testing.T) {
	hasImage := func(image string, changes ...held) held {
		return func(sb *v1alpha1.Sandbox) {
			all(changes...)(sb)
			sb.Spec.Template = podTemplateWith(image)
		}
	}
	pulledTooLong := all(isPulling, func(sb *v1alpha1.Sandbox) {
		sb.Annotations[v1alpha1.AnnotationClaimTimestamp] = birth.Add(passed - 61*time.Second).Format(time.RFC3339)
	})
	failed := func(c *v1alpha1.SandboxClaim) {
		c.Status.ObservedGeneration = c.Generation
		condition(c, birth, v1alpha1.ClaimConditionInplaceUpdate, metav1.ConditionFalse, v1alpha1.ReasonFailed, "no such image")
	}
	edited := func(c *v1alpha1.SandboxClaim) { c.Generation++ }
	noImage := func(c *v1alpha1.SandboxClaim) { c.Spec.InplaceUpdate = nil }
	tests := map[string]struct {
		claim []change
		held  []held
		takes int
		// reported is whether the claim says that the image failed.
		reported bool
	}{
		"no other image":                {claim: []change{noImage}, takes: 5},
		"at first":                      {takes: 1},
		"the first starts":              {held: []held{hasImage("two", isResizing)}, takes: 0},
		"the first is pulled":           {held: []held{hasImage("two", isPulling)}, takes: 0},
		"the first counts":              {claim: []change{lists(0, "a")}, held: []held{hasImage("two", counts)}, takes: 4},
		"the first comes to count":      {held: []held{hasImage("two")}, takes: 4},
		"the first has another image":   {claim: []change{lists(0, "a")}, held: []held{hasImage("one", counts)}, takes: 1},
		"the first is ended otherwise":  {held: []held{hasImage("two", isResizing, hasEnded(v1alpha1.SandboxFailed))}, takes: 1},
		"the first lacks it":            {held: []held{hasImage("two", lacksImage)}, takes: 0, reported: true},
		"the first was pulled too long": {held: []held{hasImage("two", pulledTooLong)}, takes: 0, reported: true},
		"the first lacked it":           {claim: []change{failed}, takes: 0, reported: true},
		"the claim is edited since":     {claim: []change{failed, edited}, takes: 1},
		"it lacked the image of before": {held: []held{hasImage("one", lacksImage)}, takes: 1},
		"the second lacks it":           {claim: []change{lists(0, "a")}, held: []held{hasImage("two", counts), hasImage("two", lacksImage)}, takes: 4, reported: true},
		"all or nothing":                {claim: []change{atOnce}, takes: 5},
		"all or nothing, it lacked it":  {claim: []change{atOnce, failed}, takes: 0, reported: true},
		"rather fails than waits":       {claim: []change{orFails}, takes: 5},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(append([]change{of(5), inPlace}, tc.claim...)...)
			for i, is := range tc.held {
				s.holds(t, string("ab"[i]), is)
			}
			a := Assess(s)
			if got := a.Needs().Take; got != tc.takes {
				t.Errorf("looks for %d sandboxes, want %d", got, tc.takes)
			}
			p := s.next(t, Offer{}, "", "")
			reported := meta.FindStatusCondition(p.Claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
			if got := reported != nil && reported.Reason == v1alpha1.ReasonFailed; got != tc.reported {
				t.Errorf("the claim says %+v", reported)
			}
			if p.Wants.Need != tc.takes {
				t.Errorf("waits for %d sandboxes, want %d", p.Wants.Need, tc.takes)
			}
		})
	}
}

// TestNoImageTrial: a claim whose image the first candidate runs already gets the others at the
// same time.
func TestNoImageTrial(t *testing.T) {
	runs := Candidate{Template: podTemplateWith("two")}
	tests := map[string]struct {
		claim []change
		held  held
		first Candidate
		takes int
	}{
		"it is there":        {first: runs, takes: 5},
		"the cpu changes":    {first: Candidate{Template: runs.Template, InPlace: inplace.Goal{CPU: true}}, takes: 5},
		"few more may fail":  {claim: []change{func(c *v1alpha1.SandboxClaim) { c.Status.FailedReplicas = 12 }}, first: runs, takes: 3},
		"it is not there":    {first: Candidate{Template: runs.Template, InPlace: inplace.Goal{Image: true}}, takes: 1},
		"it cannot be given": {first: Candidate{Template: podTemplateWith("one")}, takes: 1},
		"no template":        {takes: 1},
		"one starts":         {held: all(isResizing, func(sb *v1alpha1.Sandbox) { sb.Spec.Template = runs.Template }), first: runs, takes: 0},
		"one is enough":      {claim: []change{of(1)}, first: runs, takes: 1},
		"no image asked for": {claim: []change{func(c *v1alpha1.SandboxClaim) { c.Spec.InplaceUpdate = nil }}, first: runs, takes: 5},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(append([]change{of(5), inPlace}, tc.claim...)...)
			if tc.held != nil {
				s.holds(t, "a", tc.held)
			}
			a := Assess(s)
			if a.IsTrial() {
				a.SkipTrial(&tc.first)
			}
			if got := a.Needs().Take; got != tc.takes {
				t.Errorf("takes %d sandboxes, want %d", got, tc.takes)
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
	sb, waits, err := bindWith(marksOf(t, claimOf(inPlace)), &c, birth)
	if err != nil {
		t.Fatal(err)
	}
	if got := inplace.GoalOf(sb); !waits || !inplace.InProgress(sb) || inplace.LacksImage(sb) || got != (inplace.Goal{Image: true, Failed: "no goal"}) {
		t.Errorf("waits %v, %+v, %+v", waits, got, sb.Status.Conditions)
	}
	if until := readyBy(claimOf(nil), sb); until.Sub(birth) != v1alpha1.DefaultWaitReadyTimeout+31*time.Second {
		t.Errorf("has time until %v, want that of the process to end beside", until)
	}
	c.InPlace, c.ResizeFailed = inplace.Goal{}, nil
	if sb, waits, err = bindWith(marksOf(t, claimOf(nil)), &c, birth); err != nil || waits || len(sb.Annotations[v1alpha1.AnnotationInplaceUpdate]) > 0 {
		t.Errorf("a claim that asks for nothing: waits %v, %v, %v", waits, sb.Annotations, err)
	}
}
