// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package lull

import (
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
		takes   []int // milliseconds
		now     int
		want    time.Duration
		running bool
	}{
		"no claims":            {},
		"just taken":           {takes: []int{0}, want: 100 * time.Millisecond, running: true},
		"waits for the rest":   {takes: []int{0}, now: 30, want: 70 * time.Millisecond, running: true},
		"quiet":                {takes: []int{0}, now: 100},
		"each take extends":    {takes: []int{0, 50, 90}, now: 100, want: 90 * time.Millisecond, running: true},
		"up to patience":       {takes: every50(4950), now: 4950, want: 50 * time.Millisecond, running: true},
		"patience is over":     {takes: every50(6000), now: 6000, running: true},
		"a pause begins anew":  {takes: append(every50(6000), 6100), now: 6100, want: 100 * time.Millisecond, running: true},
		"quiet after patience": {takes: every50(6000), now: 6100},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := New(100 * time.Millisecond)
			for _, take := range test.takes {
				l.Took(pool, at(take))
			}
			if got := l.Running(pool, at(test.now)); got != test.running {
				t.Errorf("running: %v", got)
			}
			if got := l.Wait(pool, at(test.now)); got != test.want {
				t.Errorf("wait %s, want %s", got, test.want)
			}
			if got := l.Wait(types.NamespacedName{Namespace: "other", Name: "pool"}, at(test.now)); got != 0 {
				t.Errorf("another set waits %s", got)
			}
			if l.Wait(pool, at(test.now+1000)); len(l.storms) != 0 {
				t.Error("a set is remembered whose claims have paused")
			}
		})
	}
	l := New(0)
	l.Took(pool, epoch)
	if got := l.Wait(pool, epoch); got != 0 {
		t.Errorf("without a quiet period it waits %s", got)
	}
	l.Forget(pool)
	if len(l.storms) != 0 {
		t.Error("a set is remembered that is gone")
	}
}
