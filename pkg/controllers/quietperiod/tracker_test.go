// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package quietperiod

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var (
	epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pool  = types.NamespacedName{Namespace: "ns", Name: "pool"}
)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

// every50 returns times from 0 on, without a pause of 100ms, the last one at end.
func every50(end int) []int {
	var times []int
	for ms := 0; ms <= end; ms += 50 {
		times = append(times, ms)
	}
	return times
}

func TestWait(t *testing.T) {
	tests := map[string]struct {
		claims   []int // milliseconds
		now      int
		want     time.Duration
		isActive bool
	}{
		"no claims":                    {},
		"just claimed":                 {claims: []int{0}, want: 100 * time.Millisecond, isActive: true},
		"waits for the rest":           {claims: []int{0}, now: 30, want: 70 * time.Millisecond, isActive: true},
		"quiet":                        {claims: []int{0}, now: 100},
		"each claim extends":           {claims: []int{0, 50, 90}, now: 100, want: 90 * time.Millisecond, isActive: true},
		"up to the longest wait":       {claims: every50(4950), now: 4950, want: 50 * time.Millisecond, isActive: true},
		"the longest wait is over":     {claims: every50(6000), now: 6000, isActive: true},
		"claims begin again":           {claims: append(every50(6000), 6100), now: 6100, want: 100 * time.Millisecond, isActive: true},
		"quiet after the longest wait": {claims: every50(6000), now: 6100},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			const quiet = 100 * time.Millisecond
			tracker, activity := New(quiet), ClaimActivity{}
			for _, claimed := range test.claims {
				tracker.Claimed(pool, at(claimed))
				activity.Claimed(quiet, at(claimed))
			}
			if got := activity.IsActive(quiet, at(test.now)); got != test.isActive {
				t.Errorf("is active: %v", got)
			}
			if got := tracker.Wait(pool, at(test.now)); got != test.want {
				t.Errorf("wait %s, want %s", got, test.want)
			}
			if got := tracker.Wait(types.NamespacedName{Namespace: "other", Name: "pool"}, at(test.now)); got != 0 {
				t.Errorf("another set waits %s", got)
			}
			if tracker.Wait(pool, at(test.now+1000)); len(tracker.current)+len(tracker.previous) != 0 {
				t.Error("a set is remembered whose claims have paused")
			}
		})
	}
	tracker := New(0)
	tracker.Claimed(pool, epoch)
	if got := tracker.Wait(pool, epoch); got != 0 {
		t.Errorf("without a quiet period it waits %s", got)
	}
}

// TestPausedSetsAreForgotten checks that nothing stays of sets whose claims have paused, also
// where no work about them asks how long to wait.
func TestPausedSetsAreForgotten(t *testing.T) {
	for _, quiet := range []time.Duration{0, 100 * time.Millisecond} {
		tracker := New(quiet)
		const sets, perQuiet = 10000, 100
		for i := range sets {
			tracker.Claimed(types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("set-", i)}, epoch.Add(time.Duration(i)*time.Millisecond))
			if n := len(tracker.current) + len(tracker.previous); n > 2*perQuiet {
				t.Fatalf("%d sets are remembered, and claims on %d were within the quiet period", n, perQuiet)
			}
		}
		tracker.Claimed(pool, epoch.Add(24*time.Hour))
		if n := len(tracker.current) + len(tracker.previous); n > 1 {
			t.Errorf("%d sets are remembered a day later", n)
		}
	}
}
