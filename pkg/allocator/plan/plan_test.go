// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// TestWhoYields: a claim for all or nothing is queued for what its sets may come
// to hold. They grow for one that waits, not for one that has sandboxes made, also if
// it cannot have any.
func TestWhoYields(t *testing.T) {
	leaving := func(set *v1alpha1.SandboxSet) { set.DeletionTimestamp = &metav1.Time{Time: birth} }
	stays := func(*v1alpha1.SandboxSet) {}
	broken := errors.New("no template")
	tests := map[string]struct {
		claim  []change
		set    func(*v1alpha1.SandboxSet)
		broken error
		want   Wants
	}{
		"as many as it grows to":    {[]change{of(7), atOnce}, stays, nil, Wants{Need: 7, AtOnce: true}},
		"more than that":            {[]change{of(8), atOnce}, stays, nil, Wants{Need: 8, AtOnce: true, Yields: true}},
		"of one that is on its way": {[]change{of(3), atOnce}, leaving, nil, Wants{Need: 3, AtOnce: true, Yields: true}},
		"as many as are there":      {[]change{of(2), atOnce, orMade}, stays, broken, Wants{Need: 2, AtOnce: true}},
		"more, with no fresh ones":  {[]change{of(3), atOnce, orMade}, stays, broken, Wants{Need: 3, AtOnce: true, Yields: true}},
		"more, with fresh ones":     {[]change{of(3), atOnce, orMade}, stays, nil, Wants{Need: 3}},
		"in parts":                  {[]change{of(8)}, stays, nil, Wants{Need: 8}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.claim...)
			set := setOf(5)
			tc.set(set)
			s.Eligible.Pools = []*v1alpha1.SandboxSet{set}
			if got := s.next(t, Offer{Broken: tc.broken}, "", "").Wants; got != tc.want {
				t.Errorf("wants %+v", got)
			}
			if got := Assess(s).Wants(); tc.broken == nil && got != tc.want {
				t.Errorf("wants %+v before anything is found", got)
			}
		})
	}
	s := stateOf(of(2))
	s.Eligible = claims.Eligible{}
	if !Assess(s).Wants().Yields {
		t.Error("a claim that no set serves is in the way")
	}
}

// TestWhatAPlanIs: whether it changes, answers, binds, may wait, and can be written in
// parts.
func TestWhatAPlanIs(t *testing.T) {
	type kind struct{ Changes, Observes, IsOnlyProgress, Divisible bool }
	settled := func(t *testing.T, s *State) { s.Claim = s.next(t, Offer{}, "", "").Claim }
	tests := map[string]struct {
		claim        []change
		held         map[string]held
		then         func(*State)
		pooled, made string
		want         kind
	}{
		"nothing new":         {[]change{of(9)}, nil, nil, "", "", kind{IsOnlyProgress: true, Divisible: true}},
		"a changed spec":      {[]change{of(9)}, nil, func(s *State) { s.Claim.Generation++ }, "", "", kind{Changes: true, Observes: true, Divisible: true}},
		"another message":     {[]change{of(9)}, nil, func(s *State) { s.Claim.Status.Message = "x" }, "", "", kind{Changes: true, Divisible: true}},
		"a sandbox is bound":  {[]change{of(9)}, nil, nil, "a", "", kind{Changes: true, Divisible: true}},
		"a sandbox is made":   {[]change{of(9), orMade}, nil, nil, "", "x", kind{Changes: true, Divisible: true}},
		"one counts":          {[]change{of(9)}, map[string]held{"a": isReady}, nil, "", "", kind{Changes: true, IsOnlyProgress: true, Divisible: true}},
		"as many count as go": {[]change{of(9)}, map[string]held{"a": isReady, "b": isReady}, func(s *State) { s.Room = 4 }, "", "", kind{Changes: true, Divisible: true}},
		"one is let go":       {[]change{of(9)}, map[string]held{"a": isReady, "b": isTooLate}, nil, "", "", kind{Changes: true, Divisible: true}},
		"the last one counts": {[]change{of(1)}, map[string]held{"a": isReady}, nil, "", "", kind{Changes: true, Divisible: true}},
		"the end":             {[]change{of(9)}, nil, expire, "", "", kind{Changes: true, Divisible: true}},
		"all at once":         {[]change{of(2), atOnce}, nil, nil, "ab", "", kind{Changes: true}},
		"all are made":        {[]change{of(2), atOnce, orMade}, nil, nil, "", "xy", kind{Changes: true}},
		"all count":           {[]change{of(2), atOnce}, map[string]held{"a": isReady, "b": isReady}, nil, "", "", kind{Changes: true}},
		"all are let go":      {[]change{of(2), atOnce}, map[string]held{"a": isTooLate, "b": isTooLate}, nil, "", "", kind{Changes: true, Divisible: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.claim...)
			settled(t, &s)
			for _, name := range slices.Sorted(maps.Keys(tc.held)) {
				s.holds(t, name, tc.held[name])
			}
			if tc.then != nil {
				tc.then(&s)
			}
			p := s.next(t, Offer{}, tc.pooled, tc.made)
			got := kind{p.Changes(), p.ObservesSpec(), p.IsOnlyProgress(s.Room), p.CanSplit()}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
