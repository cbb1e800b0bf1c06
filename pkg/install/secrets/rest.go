// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package secrets

import "time"

const (
	// LongestRest bounds what a clock that was set wrong can do.
	LongestRest = 12 * time.Hour
	// ShortestRest keeps a time that is about to come from making a keeper spin.
	ShortestRest = time.Second
)

// Rest returns how long nothing has to be done, if nothing changes: until the first of
// the times, those that have passed left out.
func Rest(now time.Time, times ...time.Time) time.Duration {
	first := LongestRest
	for _, t := range times {
		if left := t.Sub(now); left > 0 {
			first = min(first, left)
		}
	}
	return max(first, ShortestRest)
}
