// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"
	"time"
)

func TestBurstMemory(t *testing.T) {
	var m burstMemory
	next := func(after time.Duration, generation int64, wanted, spared int, over time.Duration) {
		t.Helper()
		got := m.next(generation, wanted, epoch.Add(after))
		if want := (burst{wanted: wanted, kept: spared, requeueAfter: over}); got != want {
			t.Fatalf("after %s: %+v, want %+v", after, got, want)
		}
	}
	next(0, 1, 0, 0, 0)
	next(0, 1, 5, 5, 0)
	next(1*time.Second, 1, 8, 8, 0)
	m.recordClaim(epoch.Add(2 * time.Second))
	next(60*time.Second, 1, 3, 8, 5*time.Second) // five gave up
	m.recordClaim(epoch.Add(61 * time.Second))
	next(62*time.Second, 1, 2, 8, 4*time.Second) // claims do not pause
	next(66*time.Second, 1, 2, 2, 0)
	next(67*time.Second, 1, 0, 2, 5*time.Second)
	next(68*time.Second, 1, 2, 2, 0) // others came
	next(69*time.Second, 1, 1, 2, 5*time.Second)
	next(69*time.Second, 2, 0, 0, 0) // the user has changed the set
	next(69*time.Second, 2, 1, 1, 0)
	next(70*time.Second, 2, 0, 1, 5*time.Second)
	next(75*time.Second, 2, 0, 0, 0)
}
