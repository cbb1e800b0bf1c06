// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// TestSharedLimiters: a key that has used up its bucket leaves others to most keys, and more keys do not
// fill its own.
func TestSharedLimiters(t *testing.T) {
	limiters, now := fairness.NewSharedLimiters(1, 3), time.Unix(1e9, 0)
	for range 3 {
		if !limiters.Allow("a", now) {
			t.Fatal("a may not do 3 at once")
		}
	}
	allowed := 0
	for i := range 10000 {
		if limiters.Allow(fmt.Sprint(i), now) {
			allowed++
		}
	}
	if most := 63 * 3; allowed < 3 || allowed > most {
		t.Errorf("10000 other keys may do %d at once, want up to %d", allowed, most)
	}
	if limiters.Allow("a", now) {
		t.Error("a may do 4 at once")
	}
	if !limiters.Allow("a", now.Add(time.Second)) {
		t.Error("a may not do another a second later")
	}
}
