// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// outcome is an assessment in short: the names of sandboxes are single letters.
type outcome struct {
	Listed            string
	Unlisted          int
	Counted, Released string
	Waiting           string
	Missing           int
	Needs             Needs
	// Model reports whether the model has to be known.
	Model bool
}

func outcomeOf(s *State) outcome {
	a := Assess(*s)
	o := outcome{
		Unlisted: a.held.unlisted, Counted: namesOf(a.held.counted), Released: namesOf(a.held.released), Waiting: namesOf(a.held.waiting),
		Missing: a.Missing(), Needs: a.Needs(), Model: NeedsModel(s),
	}
	for _, entry := range a.held.listed {
		o.Listed += entry.Name
	}
	return o
}

// TestAssessOne: what becomes of one sandbox that a claim for two holds, and what the
// claim needs then.
func TestAssessOne(t *testing.T) {
	takes := func(n int) Needs { return Needs{Take: n} }
	counted := outcome{Listed: "a", Counted: "a", Missing: 1, Needs: takes(1)}
	waits := outcome{Waiting: "a", Missing: 1, Needs: takes(1)}
	released := outcome{Released: "a", Missing: 2, Needs: takes(2)}
	gone := outcome{Missing: 2, Needs: takes(2)}
	late := func(o outcome) *outcome { o.Needs = Needs{}; return &o } // its time is up
	all1 := func(o outcome) *outcome { return &o }
	ready := outcome{Missing: 1, Needs: takes(1)} // with AllOrNothing, until all are
	tests := map[string]struct {
		sandbox held
		// parts is with BestEffort, whole with AllOrNothing, and the others when the time
		// of the claim is up; nil is like whole, or like parts.
		parts                          outcome
		whole, partsLate, wholeExpired *outcome
	}{
		"ready":                    {isReady, counted, &ready, late(counted), late(released)},
		"pending":                  {isPending, waits, nil, late(released), late(released)},
		"without an address":       {hasNoAddress, waits, nil, late(released), late(released)},
		"not ready":                {isNotReady, waits, nil, late(released), late(released)},
		"being resized":            {isResizing, waits, nil, late(released), late(released)},
		"resized":                  {isResized, counted, &ready, late(counted), late(released)},
		"resized in vain":          {couldNotBeResized, counted, &ready, late(counted), late(released)},
		"nearly too late":          {isNearlyTooLate, waits, nil, late(released), late(released)},
		"too late":                 {isTooLate, released, &outcome{Released: "a", Missing: 2}, late(released), late(released)},
		"failed":                   {hasEnded(v1alpha1.SandboxFailed), released, &outcome{Released: "a", Missing: 2}, late(released), late(released)},
		"ended":                    {hasEnded(v1alpha1.SandboxSucceeded), released, &outcome{Released: "a", Missing: 2}, late(released), late(released)},
		"on its way out":           {hasEnded(v1alpha1.SandboxTerminating), released, &outcome{Released: "a", Missing: 2}, late(released), late(released)},
		"failed, being resized":    {all(isResizing, hasEnded(v1alpha1.SandboxFailed)), released, &outcome{Released: "a", Missing: 2}, late(released), late(released)},
		"paused":                   {hasEnded(v1alpha1.SandboxPaused), waits, nil, late(released), late(released)},
		"deleted":                  {isDeleted, gone, nil, late(gone), late(gone)},
		"reserved":                 {isReserved, gone, nil, late(gone), late(gone)},
		"the user's already":       {counts, outcome{Listed: "a", Missing: 1, Needs: takes(1)}, nil, nil, nil},
		"the user's, and paused":   {all(counts, hasEnded(v1alpha1.SandboxPaused)), outcome{Listed: "a", Missing: 1, Needs: takes(1)}, nil, nil, nil},
		"the user's, and dead":     {all(counts, isNotReady), gone, nil, late(gone), late(gone)},
		"the user's, and deleted":  {all(counts, isDeleted), gone, nil, late(gone), late(gone)},
		"the user's, and reserved": {all(counts, isReserved), gone, nil, late(gone), late(gone)},
	}
	for name, tc := range tests {
		if tc.whole == nil {
			tc.whole = all1(tc.parts)
		}
		if tc.partsLate == nil {
			tc.partsLate = late(tc.parts)
		}
		if tc.wholeExpired == nil {
			tc.wholeExpired = tc.partsLate
		}
		for _, policy := range []struct {
			name    string
			change  change
			expired bool
			want    outcome
		}{
			{"BestEffort", func(*v1alpha1.SandboxClaim) {}, false, tc.parts},
			{"AllOrNothing", atOnce, false, *tc.whole},
			{"BestEffort, expired", func(*v1alpha1.SandboxClaim) {}, true, *tc.partsLate},
			{"AllOrNothing, expired", atOnce, true, *tc.wholeExpired},
		} {
			t.Run(name+"/"+policy.name, func(t *testing.T) {
				s := stateOf(of(2), policy.change)
				s.holds(t, "a", tc.sandbox)
				if policy.expired {
					expire(&s)
				}
				if diff := cmp.Diff(policy.want, outcomeOf(&s)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestAssess(t *testing.T) {
	reason := &RefusedError{Reason: v1alpha1.ReasonEnvVarsInjectionRejected, Message: "not allowed"}
	tests := map[string]struct {
		claim []change
		held  map[string]held
		state func(*State)
		want  outcome
	}{
		"a deleted sandbox that is listed counts": {
			claim: []change{of(2), lists(0, "a")}, held: map[string]held{"a": all(counts, isDeleted)},
			want: outcome{Listed: "a", Missing: 1, Needs: Needs{Take: 1}},
		},
		"one that is gone counts, too": {
			claim: []change{of(2), lists(0, "a")}, want: outcome{Listed: "a", Missing: 1, Needs: Needs{Take: 1}},
		},
		"a client lowered the status": {
			claim: []change{of(3), lists(0, "b")}, held: map[string]held{"a": counts, "b": counts, "c": counts},
			want: outcome{Listed: "bac"},
		},
		"a client dropped a name, and not the number": {
			claim: []change{of(3), lists(1, "b")}, held: map[string]held{"a": counts, "b": counts},
			want: outcome{Listed: "ba", Missing: 1, Needs: Needs{Take: 1}},
		},
		"a client raised the number": {
			claim: []change{of(3), lists(2)}, held: map[string]held{"a": counts},
			want: outcome{Listed: "a", Unlisted: 1, Missing: 1, Needs: Needs{Take: 1}},
		},
		"a client raised it while more are starting than needed": {
			claim: []change{of(3), lists(2)}, held: map[string]held{"a": isReady, "b": isReady, "c": isPending},
			want: outcome{Listed: "a", Unlisted: 2, Counted: "a", Released: "bc"},
		},
		"and none is needed": {
			claim: []change{of(2), lists(3)}, held: map[string]held{"a": isReady, "b": isPending},
			want: outcome{Unlisted: 3, Released: "ab"},
		},
		"with all or nothing, too": {
			claim: []change{of(2), atOnce, lists(1)}, held: map[string]held{"a": isReady, "b": isPending},
			want: outcome{Unlisted: 1, Released: "b", Missing: 0},
		},
		"there is room for one": {
			claim: []change{of(4)}, held: map[string]held{"a": isReady, "b": isTooLate, "c": isReady, "d": isTooLate},
			state: func(s *State) { s.Room = 1 },
			want:  outcome{Released: "b", Missing: 1, Needs: Needs{}},
		},
		"there is room for three": {
			claim: []change{of(5)}, held: map[string]held{"a": isReady, "b": isTooLate, "c": isReady, "d": isTooLate},
			state: func(s *State) { s.Room = 3 },
			want:  outcome{Listed: "a", Counted: "a", Released: "bd", Missing: 3, Needs: Needs{}},
		},
		"there is room for more": {
			claim: []change{of(9)}, held: map[string]held{"a": isReady, "b": isTooLate},
			state: func(s *State) { s.Room = 5 },
			want:  outcome{Listed: "a", Counted: "a", Released: "b", Missing: 8, Needs: Needs{Take: 3}},
		},
		"all are ready in time for all or nothing": {
			claim: []change{of(2), atOnce}, held: map[string]held{"a": isReady, "b": isReady}, state: expire,
			want: outcome{},
		},
		"or do not fit": {
			claim: []change{of(2), atOnce}, held: map[string]held{"a": isReady, "b": isReady},
			state: func(s *State) { s.Refused = &RefusedError{Reason: v1alpha1.ReasonTooLarge} },
			want:  outcome{Released: "ab", Missing: 2},
		},
		"refused": {
			claim: []change{of(3)}, held: map[string]held{"a": isReady, "b": isPending}, state: func(s *State) { s.Refused = reason },
			want: outcome{Listed: "a", Counted: "a", Waiting: "b", Missing: 1},
		},
		"refused, all or nothing": {
			claim: []change{of(3), atOnce}, held: map[string]held{"a": isReady, "b": isPending}, state: func(s *State) { s.Refused = reason },
			want: outcome{Released: "ab", Missing: 3},
		},
		"refused, and all are ready": {
			claim: []change{of(2), atOnce}, held: map[string]held{"a": isReady, "b": isReady}, state: func(s *State) { s.Refused = reason },
			want: outcome{},
		},

		"makes what the pools lack": {claim: []change{of(2), orMade}, want: outcome{Missing: 2, Needs: Needs{Take: 2, Make: true}}},
		"all or nothing of it":      {claim: []change{of(2), orMade, atOnce}, want: outcome{Missing: 2, Needs: Needs{Take: 2, Make: true}}},
		"from nothing": {
			claim: []change{of(2), orMade, atOnce}, state: func(s *State) { s.Eligible.MakeFrom = nil },
			want: outcome{Missing: 2, Needs: Needs{Take: 2}},
		},
		"with something in the way": {
			claim: []change{of(2), orMade}, state: func(s *State) { s.Eligible.Problem = &claims.Problem{} },
			want: outcome{Missing: 2, Needs: Needs{Take: 2}},
		},
		"not now": {
			claim: []change{of(2), orMade}, state: func(s *State) { s.Making.Allowed = false }, want: outcome{Missing: 2, Needs: Needs{Take: 2}},
		},
		"not in place of what failed just now": {
			claim: []change{of(2), orMade}, held: map[string]held{"a": isTooLate},
			want: outcome{Released: "a", Missing: 2, Needs: Needs{Take: 2}},
		},
		"is told at the end what it could not get": {
			claim: []change{of(2), orMade}, state: expire, want: outcome{Missing: 2, Needs: Needs{Explain: true}},
		},
		"unless it has all": {claim: []change{of(1), orMade, lists(0, "a")}, state: expire, want: outcome{Listed: "a"}},

		"a new claim that would rather fail takes what fits, and the caller all": {
			claim: []change{of(3), orFails}, state: func(s *State) { isNew(s); s.Room = 2 }, want: outcome{Missing: 3, Needs: Needs{Take: 2}},
		},
		"or what fits, and has the rest made": {
			claim: []change{of(3), orFails, orMade}, state: func(s *State) { isNew(s); s.Room = 2 },
			want: outcome{Missing: 3, Needs: Needs{Take: 2, Make: true}},
		},
		"one that is stored waits": {
			claim: []change{of(3), orFails}, state: func(s *State) { s.Room = 2 }, want: outcome{Missing: 3, Needs: Needs{Take: 2}},
		},

		"asks whether the template takes what it adds": {
			claim: []change{of(2), orMade, withEnv}, held: map[string]held{"a": isPending},
			want: outcome{Waiting: "a", Missing: 1, Needs: Needs{Take: 1, Make: true}, Model: true},
		},
		"not for what is on its way": {
			claim: []change{of(2), orMade, withEnv}, held: map[string]held{"a": isPending, "b": isPending}, want: outcome{Waiting: "ab"},
		},
		"but in place of what was deleted or reserved": {
			claim: []change{of(2), orMade, withEnv}, held: map[string]held{"a": isDeleted, "b": isReserved},
			want: outcome{Missing: 2, Needs: Needs{Take: 2, Make: true}, Model: true},
		},
		"not where there is no template": {
			claim: []change{of(2), orMade, withEnv}, state: func(s *State) { s.Eligible.Problem = &claims.Problem{} },
			want: outcome{Missing: 2, Needs: Needs{Take: 2}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.claim...)
			for _, name := range slices.Sorted(maps.Keys(tc.held)) {
				s.holds(t, name, tc.held[name])
			}
			if tc.state != nil {
				tc.state(&s)
			}
			if diff := cmp.Diff(tc.want, outcomeOf(&s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestReserved: what failed is kept for debugging where the claim says so, and nothing
// else.
func TestReserved(t *testing.T) {
	for _, reserve := range []bool{false, true} {
		s := stateOf(of(3), atOnce, func(c *v1alpha1.SandboxClaim) { c.Spec.ReserveFailedSandbox = reserve })
		s.holds(t, "a", isReady)
		s.holds(t, "b", isTooLate)
		s.holds(t, "c", isPending)
		expire(&s)
		reserved := ""
		for _, sb := range Assess(s).held.released {
			if sb.Labels[v1alpha1.LabelReservedFailedSandbox] == "true" {
				reserved += sb.Name
			}
		}
		if want := map[bool]string{true: "bc"}[reserve]; reserved != want {
			t.Errorf("keeps %q, want %q", reserved, want)
		}
	}
}
