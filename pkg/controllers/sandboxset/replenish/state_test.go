// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestShortage(t *testing.T) {
	at := func(seconds float64) time.Time { return time.Unix(0, int64(seconds*1e9)) }
	type step struct {
		at        float64
		took      bool
		available int     // of 4
		since     float64 // 0: not short
	}
	cases := map[string]struct {
		steps []step
		want  []float64
	}{
		"a new set is short until it is full": {
			steps: []step{{at: 1, available: 0, since: 1}, {at: 2, available: 3, since: 1}, {at: 4, available: 4}},
			want:  []float64{3},
		},
		"from the first claim on": {
			steps: []step{{at: 1, available: 4}, {at: 2, took: true}, {at: 3, took: true}, {at: 5, available: 2, since: 2}, {at: 6, available: 4}},
			want:  []float64{4},
		},
		"a claim on more than enough": {
			steps: []step{{at: 1, available: 6}, {at: 2, took: true}, {at: 3, available: 5}, {at: 4, available: 3, since: 4}, {at: 5, available: 4}},
			want:  []float64{1},
		},
		"claims while it is short do not begin anew": {
			steps: []step{{at: 1, available: 1, since: 1}, {at: 2, took: true}, {at: 3, available: 2, since: 1}, {at: 9, available: 4}, {at: 10, available: 4}},
			want:  []float64{8},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []float64
			var s shortage
			for _, step := range tc.steps {
				if step.took {
					s.recordClaim(at(step.at))
					continue
				}
				want := time.Time{}
				if step.since != 0 {
					want = at(step.since)
				}
				since, length := s.recordCount(step.available, 4, at(step.at))
				if !since.Equal(want) {
					t.Errorf("at %v the pool has been short since %v, want %v", step.at, since, want)
				}
				if length > 0 {
					got = append(got, length.Seconds())
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("lengths (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCreateTimes(t *testing.T) {
	zero := time.Unix(100, 0)
	s := createTimes{"quick": zero, "slow": zero.Add(time.Second), "failed": zero.Add(2 * time.Second)}
	for _, step := range []struct {
		uid   types.UID
		now   poolState
		after int           // seconds
		want  time.Duration // 0: nothing is measured
	}{
		{"quick", stateCreating, 5, 0},
		{"quick", stateAvailable, 6, 6 * time.Second},
		{"quick", stateAvailable, 7, 0}, // a start is measured once
		{"failed", stateEnded, 8, 0},
		{"stranger", stateAvailable, 9, 0},
		{"slow", stateAvailable, 10, 9 * time.Second},
	} {
		got, ok := s.recordState(step.uid, step.now, zero.Add(time.Duration(step.after)*time.Second))
		if ok != (step.want > 0) || ok && got != step.want {
			t.Errorf("%s after %ds: took %s, %t, want %s", step.uid, step.after, got, ok, step.want)
		}
	}
	if len(s) > 0 {
		t.Errorf("still remembered: %v", s)
	}
}

// What is remembered of a set begins with a reconcile and ends with the set, whatever
// events come before and after.
func TestSetStates(t *testing.T) {
	states := newSetStates(time.Second)
	set := makeSet(1)
	key := types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
	taken := func() int {
		n := -1
		states.withState(key, func(s *setState) { n = s.claimRate.claimed })
		return n
	}
	take := func() { states.withState(key, func(s *setState) { s.recordClaim(epoch) }) }
	want := func(what string, n int) {
		t.Helper()
		if got := taken(); got != n {
			t.Errorf("%s: %d are taken, want %d", what, got, n)
		}
	}
	take()
	want("before the first reconcile", -1)
	states.track(set)
	take()
	states.track(set)
	want("of the same set", 1)
	again := set.DeepCopy()
	again.UID = "again"
	states.track(again)
	want("of another set of that name", 0)
	if got := states.eventDelay(key); got != time.Second {
		t.Errorf("events are gathered for %s", got)
	}
	states.forget(key)
	take()
	want("gone", -1)
	if got := states.eventDelay(key); len(states.sets) != 0 || got != time.Second {
		t.Errorf("remembers %v, events are gathered for %s", states.sets, got)
	}
}
