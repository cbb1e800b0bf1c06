// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// observed keeps what a histogram would be told.
type observed []float64

func (o *observed) Observe(value float64) { *o = append(*o, value) }

func TestShortages(t *testing.T) {
	set := types.NamespacedName{Namespace: "ns", Name: "py"}
	at := func(seconds float64) time.Time { return time.Unix(0, int64(seconds*1e9)) }
	type step struct {
		at        float64
		took      bool
		available int     // of 4
		since     float64 // 0: not short
	}
	cases := map[string]struct {
		steps []step
		want  observed
	}{
		"a new set is short until it is full": {
			steps: []step{{at: 1, available: 0, since: 1}, {at: 2, available: 3, since: 1}, {at: 4, available: 4}},
			want:  observed{3},
		},
		"from the first claim on": {
			steps: []step{{at: 1, available: 4}, {at: 2, took: true}, {at: 3, took: true}, {at: 5, available: 2, since: 2}, {at: 6, available: 4}},
			want:  observed{4},
		},
		"a claim on more than enough": {
			steps: []step{{at: 1, available: 6}, {at: 2, took: true}, {at: 3, available: 5}, {at: 4, available: 3, since: 4}, {at: 5, available: 4}},
			want:  observed{1},
		},
		"claims while it is short do not begin anew": {
			steps: []step{{at: 1, available: 1, since: 1}, {at: 2, took: true}, {at: 3, available: 2, since: 1}, {at: 9, available: 4}, {at: 10, available: 4}},
			want:  observed{8},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got observed
			s := newShortages(&got)
			for _, step := range tc.steps {
				if step.took {
					s.took(set, at(step.at))
					continue
				}
				want := time.Time{}
				if step.since != 0 {
					want = at(step.since)
				}
				if since := s.looked(set, step.available, 4, at(step.at)); !since.Equal(want) {
					t.Errorf("at %v the pool has been short since %v, want %v", step.at, since, want)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("lengths (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStarts(t *testing.T) {
	var got observed
	s, zero := newStarts(&got), time.Unix(100, 0)
	for i, uid := range []types.UID{"quick", "slow", "failed"} {
		s.created(uid, zero.Add(time.Duration(i)*time.Second))
		s.saw(uid, useCreating, zero.Add(5*time.Second))
	}
	s.saw("quick", useAvailable, zero.Add(6*time.Second))
	s.saw("quick", useAvailable, zero.Add(7*time.Second)) // a start is measured once
	s.saw("failed", useGarbage, zero.Add(8*time.Second))
	s.saw("stranger", useAvailable, zero.Add(9*time.Second))
	s.saw("slow", useAvailable, zero.Add(10*time.Second))
	if diff := cmp.Diff(observed{6, 9}, got); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
	if len(s.since) > 0 {
		t.Errorf("still remembered: %v", s.since)
	}
}
