// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"
	"time"
)

// TestRequeueAfterDelays: what only a delay of the refill holds back, such as a removal, does not wait for a
// backoff.
func TestRequeueAfterDelays(t *testing.T) {
	for name, test := range map[string]struct {
		delays delays
		want   time.Duration
	}{
		"none":    {delays{}, 0},
		"backoff": {delays{backoff: time.Minute}, time.Minute},
		"refill":  {delays{refill: time.Second}, time.Second},
		"both":    {delays{backoff: time.Minute, refill: time.Second}, time.Second},
	} {
		if got := requeueAfterPlan(&pool{}, plan{}, test.delays, true, false, 100*time.Millisecond); got != test.want {
			t.Errorf("%s: after %s, want %s", name, got, test.want)
		}
	}
}
