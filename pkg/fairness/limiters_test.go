// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// TestLimiters: each key has a bucket of its own, and not more keys are remembered than there may be.
func TestLimiters(t *testing.T) {
	limiters, now := fairness.NewLimiters(2, 1, 3), time.Unix(1e9, 0)
	if !limiters.Of("a").AllowN(now, 3) || limiters.Of("a").AllowN(now, 1) {
		t.Error("a may not do 3 at once, or more")
	}
	if !limiters.Of("b").AllowN(now, 3) || !limiters.Of("a").AllowN(now.Add(time.Second), 1) {
		t.Error("b may not do what a has done, or a nothing a second later")
	}
	for i := range 10 {
		limiters.Of(fmt.Sprint(i))
	}
	if limiters.Len() != 2 {
		t.Errorf("%d keys are remembered, want 2", limiters.Len())
	}
}
