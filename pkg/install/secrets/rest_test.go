// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"testing"
	"time"
)

func TestRest(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := start.Add
	for name, tc := range map[string]struct {
		times []time.Time
		want  time.Duration
	}{
		"nothing":           {nil, LongestRest},
		"the first":         {[]time.Time{at(3 * time.Minute), at(2 * time.Minute)}, 2 * time.Minute},
		"not the past":      {[]time.Time{at(-time.Minute), at(0), at(2 * time.Minute)}, 2 * time.Minute},
		"not too long":      {[]time.Time{at(99 * 24 * time.Hour)}, LongestRest},
		"not without pause": {[]time.Time{at(time.Millisecond)}, ShortestRest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Rest(start, tc.times...); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
