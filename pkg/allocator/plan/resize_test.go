// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

func TestResizingLeavesSomethingToObserve(t *testing.T) {
	tests := map[string]struct {
		candidate Candidate
		observed  int64
		want      []string
	}{
		"resized": {Candidate{Resize: true}, 3, []string{
			"Ready False InplaceUpdating 4: inplace update is incompleted", "InplaceUpdate False InplaceUpdating 4: inplace update is incompleted",
		}},
		"as it is": {Candidate{}, 4, []string{"Ready True PodReady 4: "}},
		"to a size that is not known": {Candidate{ResizeFailed: errors.New("no template")}, 4, []string{
			"Ready True PodReady 4: ", "InplaceUpdate False Failed 4: in-place resource resize failed: no template",
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			from := pooled.DeepCopy()
			from.Generation = 3
			from.Status = v1alpha1.SandboxStatus{ObservedGeneration: 3, UpdateRevision: "before", Conditions: []metav1.Condition{{
				Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodReady, ObservedGeneration: 3,
			}}}
			tc.candidate.Sandbox, tc.candidate.Template = from, from.Spec.Template
			before := from.DeepCopy()
			sb, waits, err := bindWith(marksOf(t, claimOf(nil)), &tc.candidate, birth)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range sb.Status.Conditions {
				got = append(got, fmt.Sprintf("%s %s %s %d: %s", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if sb.Generation != 4 || sb.Status.ObservedGeneration != tc.observed || (sb.Status.UpdateRevision == "before") != tc.candidate.Resize {
				t.Errorf("generation %d, observed %d, revision %s", sb.Generation, sb.Status.ObservedGeneration, sb.Status.UpdateRevision)
			}
			if waits != tc.candidate.Resize || inplace.InProgress(sb) != waits {
				t.Errorf("waits: %t", waits)
			}
			if diff := cmp.Diff(before, from); diff != "" {
				t.Errorf("the sandbox in the pool changed (-before +after):\n%s", diff)
			}
		})
	}
}

// TestFailedResizeIsTakenBack: the template of a sandbox that counts without the resources that the
// claim asks for has those of before, and its status is up to date.
func TestFailedResizeIsTakenBack(t *testing.T) {
	const small, large = `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}]}}`, `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}]}}`
	for name, tc := range map[string]struct {
		failed string
		want   string
	}{"it failed": {"no room", `"1"`}, "it did not": {"", `"2"`}} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(of(1))
			template := &runtime.RawExtension{Raw: []byte(large)}
			goal := inplace.Goal{CPU: true, Before: inplace.Before(&runtime.RawExtension{Raw: []byte(small)}, template)}
			sb, _, err := bindWith(marksOf(t, s.Claim), &Candidate{Sandbox: stocked("a"), Template: template, InPlace: goal, Lock: "lock"}, s.Now.Add(-boundFor))
			if err != nil {
				t.Fatal(err)
			}
			setCounted(sb, s.Claim, false)
			isReady(sb)
			setReady(sb, metav1.ConditionTrue)
			setResized(sb, tc.failed)
			sb.Status.ObservedGeneration = sb.Generation
			if sb.Status.UpdateRevision, err = podtemplate.SandboxRevision(sb); err != nil {
				t.Fatal(err)
			}
			s.Held = append(s.Held, sb)
			p, err := Assess(s).Next(Offer{}, marksOf(t, s.Claim))
			if err != nil || len(p.Counted) != 1 {
				t.Fatalf("counts %d: %v", len(p.Counted), err)
			}
			got := p.Counted[0]
			revision, err := podtemplate.SandboxRevision(got)
			if err != nil || !strings.Contains(string(got.Spec.Template.Raw), tc.want) || inplace.GoalOf(got).Before != "" {
				t.Errorf("%v: %s, %v", err, got.Spec.Template.Raw, got.Annotations)
			}
			if got.Status.UpdateRevision != revision || got.Status.ObservedGeneration != got.Generation || got.Generation > sb.Generation != (tc.failed != "") {
				t.Errorf("generation %d after %d, %+v", got.Generation, sb.Generation, got.Status)
			}
			if !strings.Contains(string(sb.Spec.Template.Raw), `"2"`) {
				t.Errorf("what was there before changed: %s", sb.Spec.Template.Raw)
			}
		})
	}
}

func TestResizesInTheStatus(t *testing.T) {
	sandbox := func(name string, changes ...held) *v1alpha1.Sandbox {
		sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name}}
		all(changes...)(sb)
		return sb
	}
	failure := func(why string) held { return func(sb *v1alpha1.Sandbox) { setResized(sb, why) } }
	plain, done, runs := sandbox("plain"), sandbox("done", isResized), sandbox("runs", isResizing)
	failed := func(i int) *v1alpha1.Sandbox { return sandbox(fmt.Sprint("f", i), failure("why")) }
	long := sandbox("long", failure(strings.Repeat("ü", maxReason)))
	tests := map[string]struct {
		sandboxes []*v1alpha1.Sandbox
		want      string
	}{
		"none":              {nil, ""},
		"nothing to resize": {[]*v1alpha1.Sandbox{plain}, ""},
		"all done":          {[]*v1alpha1.Sandbox{done, plain, done}, "True Succeeded: Resized 2 sandboxes"},
		"some run":          {[]*v1alpha1.Sandbox{done, runs}, "False InplaceUpdating: Resizing 1 sandboxes"},
		"some failed":       {[]*v1alpha1.Sandbox{done, failed(1), runs}, "False Failed: 1 of 3 sandboxes could not be resized: f1: why"},
		"many failed": {
			[]*v1alpha1.Sandbox{failed(1), failed(2), failed(3), failed(4), failed(5)},
			"False Failed: 5 of 5 sandboxes could not be resized: f1: why; f2: why; f3: why; and 2 more",
		},
		"a long story": {
			[]*v1alpha1.Sandbox{long},
			"False Failed: 1 of 1 sandboxes could not be resized: long: " + strings.Repeat("ü", maxReason/2) + "...",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				var r resizes
				for _, sb := range tc.sandboxes {
					r.add(sb)
				}
				claim := claimOf(nil)
				condition(claim, birth, v1alpha1.ClaimConditionInplaceUpdate, metav1.ConditionTrue, "Before", "")
				r.report(claim, birth)
				var got string
				for _, c := range claim.Status.Conditions {
					got += fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
				}
				if got != tc.want {
					t.Errorf("says %q, want %q", got, tc.want)
				}
				slices.Reverse(tc.sandboxes) // in whatever order they come to count
			}
		})
	}
}

// TestResizesAreCopied: a copy of the count goes its own way.
func TestResizesAreCopied(t *testing.T) {
	sandbox := func(name string) *v1alpha1.Sandbox {
		sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name}}
		setResized(sb, "why")
		return sb
	}
	var r resizes
	for n := range namedFailures {
		r.add(sandbox(fmt.Sprint("b", n)))
		before, other := slices.Clone(r.reasons), r
		other.add(sandbox("a"))
		if !slices.Equal(before, r.reasons) || other.reasons[0] != "a: why" {
			t.Errorf("counted %v and %v, was %v", r.reasons, other.reasons, before)
		}
	}
}

// TestResizesOfAClaim: the status reports what the claim holds after a plan, and the
// plan the resizes that it ends.
func TestResizesOfAClaim(t *testing.T) {
	small := func(name string, failed error) Candidate {
		sb := stocked(name)
		return Candidate{Sandbox: sb, Template: sb.Spec.Template, Resize: failed == nil, ResizeFailed: failed}
	}
	noGoal := errors.New("no goal")
	const noGoalSaid = "in-place resource resize failed: no goal"
	tests := map[string]struct {
		claim []change
		held  map[string]held
		found []Candidate
		want  string
		ended Resizes
		// bound are as in TestNext.
		bound string
	}{
		"begins":               {[]change{of(3)}, nil, []Candidate{small("a", nil), small("b", nil)}, "False InplaceUpdating: Resizing 2 sandboxes", Resizes{}, "a*b*"},
		"begins, all at once":  {[]change{of(1), atOnce}, nil, []Candidate{small("a", nil)}, "False InplaceUpdating: Resizing 1 sandboxes", Resizes{}, "a*"},
		"continues":            {[]change{of(2)}, map[string]held{"a": isResizing}, nil, "False InplaceUpdating: Resizing 1 sandboxes", Resizes{}, ""},
		"is deleted meanwhile": {[]change{of(2)}, map[string]held{"a": all(isResizing, isDeleted), "b": all(isResizing, isReserved)}, nil, "", Resizes{}, ""},
		"is done":              {[]change{of(2)}, map[string]held{"a": isResized}, nil, "True Succeeded: Resized 1 sandboxes", Resizes{Succeeded: 1}, ""},
		"is done, for all or nothing": {
			[]change{of(2), atOnce}, map[string]held{"a": isResized}, nil, "True Succeeded: Resized 1 sandboxes", Resizes{}, "",
		},
		"was done before": {[]change{of(2)}, map[string]held{"a": all(isResized, counts)}, nil, "True Succeeded: Resized 1 sandboxes", Resizes{}, ""},
		"fails": {
			[]change{of(2)}, map[string]held{"a": couldNotBeResized}, nil,
			"False Failed: 1 of 1 sandboxes could not be resized: a: no room", Resizes{Failed: 1}, "",
		},
		"fails before it begins": {
			[]change{of(3)}, map[string]held{"b": couldNotBeResized}, []Candidate{small("a", noGoal)},
			"False Failed: 2 of 2 sandboxes could not be resized: a: " + noGoalSaid + "; b: no room", Resizes{Failed: 2}, "a",
		},
		"fails before it begins, for all or nothing": {
			[]change{of(2), atOnce}, map[string]held{"b": isPending}, []Candidate{small("a", noGoal)},
			"False Failed: 1 of 1 sandboxes could not be resized: a: " + noGoalSaid, Resizes{}, "a*",
		},
		"is let go": {[]change{of(2)}, map[string]held{"a": all(isTooLate, isResizing), "b": all(isResizing, hasEnded(v1alpha1.SandboxFailed))}, nil,
			"", Resizes{Release: 2}, ""},
		"nothing is resized": {[]change{of(2)}, map[string]held{"a": isReady}, nil, "", Resizes{}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.claim...)
			for _, name := range slices.Sorted(maps.Keys(tc.held)) {
				s.holds(t, name, tc.held[name])
			}
			p := s.next(t, Offer{Candidates: tc.found}, "", "")
			var got string
			if c := meta.FindStatusCondition(p.Claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate); c != nil {
				got = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
			if got != tc.want || resizesOf(p) != tc.ended || inShort(&s, p).Bound != tc.bound {
				t.Errorf("says %q, want %q; ends %+v; binds %s", got, tc.want, resizesOf(p), inShort(&s, p).Bound)
			}
		})
	}
}

// TestResizesMayWait: a claim is not written at once for each sandbox whose size is what
// it is to be.
func TestResizesMayWait(t *testing.T) {
	tests := map[string]struct {
		then func(*State)
		want bool
	}{
		"one is done":             {func(s *State) { setResized(s.Held[0], "") }, true},
		"one has failed":          {func(s *State) { setResized(s.Held[0], "no room") }, true},
		"one is gone":             {func(s *State) { s.Held = s.Held[1:] }, false}, // it says what it waits for
		"something is in the way": {func(s *State) { s.Held = s.Held[1:]; s.Claim.Status.Message = "x" }, false},
		"the end":                 {func(s *State) { s.Held = s.Held[1:]; s.Now = Deadline(s.Claim, s.Start) }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(of(3))
			s.holds(t, "a", all(isResizing, isNotReady))
			s.holds(t, "b", all(isResizing, isNotReady))
			s.Claim = s.next(t, Offer{}, "", "").Claim
			tc.then(&s)
			if p := s.next(t, Offer{}, "", ""); !p.Changes() || p.IsOnlyProgress(s.Room) != tc.want {
				t.Errorf("changes %t, may wait %t", p.Changes(), p.IsOnlyProgress(s.Room))
			}
		})
	}
}

// Resizes counts resizes by how they went.
type Resizes struct{ Succeeded, Failed, Release int }

func resizesOf(p *Plan) (r Resizes) {
	r.Succeeded, r.Failed, r.Release = p.Resizes()
	return r
}
