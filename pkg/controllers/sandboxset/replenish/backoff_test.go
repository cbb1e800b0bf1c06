// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	type round struct {
		after    time.Duration // since the round before
		outcome  outcome
		revision string
		want     time.Duration
	}
	const s = time.Second
	// made is when a sandbox was created, in seconds.
	made := func(second int) time.Time { return epoch.Add(time.Duration(second) * s) }
	ended := func(after, want time.Duration) round {
		return round{after, outcome{ended: 1, newestEnded: made(5)}, current, want}
	}
	nothing := func(after, want time.Duration) round { return round{after, outcome{}, current, want} }
	works := func(second int) outcome { return outcome{newestAvailable: made(second)} }
	both := func(end, available int) outcome {
		return outcome{ended: 3, newestEnded: made(end), newestAvailable: made(available)}
	}
	tests := map[string][]round{
		"none":                   {nothing(0, 0), {s, works(5), current, 0}},
		"some end, newer do not": {{0, both(5, 6), current, 0}},
		"some of a round end":    {{0, both(5, 5), current, 0}},
		"doubles":                {ended(0, s), ended(s, 2*s), ended(2*s, 4*s), ended(4*s, 8*s)},
		"up to a minute": {ended(0, s), ended(s, 2*s), ended(2*s, 4*s), ended(4*s, 8*s), ended(8*s, 16*s),
			ended(16*s, 32*s), ended(32*s, 60*s), ended(60*s, 60*s)},
		"more of the same round":                {ended(0, s), ended(s/4, 3*s/4), ended(s/4, s/2), ended(s/2, 2*s)},
		"pause continues when they are removed": {ended(0, s), nothing(s/2, s/2), nothing(s/2, 0), ended(0, 2*s)},
		"a success ends it":                     {ended(0, s), {s / 2, works(5), current, 0}, ended(0, s)},
		"older ones prove nothing": {
			{0, both(5, 1), current, s}, {s / 2, works(1), current, s / 2}, {s / 2, works(1), current, 0}, {0, both(7, 1), current, 2 * s},
			{2 * s, works(6), current, 0}, {0, both(9, 6), current, 4 * s}, {0, works(9), current, 0}, ended(0, s),
		},
		"another template ends it":   {ended(0, s), ended(s, 2*s), {0, outcome{}, older, 0}, {0, both(5, 1), older, s}},
		"ending in another template": {ended(0, s), ended(s, 2*s), {0, both(1, 0), older, s}},
	}
	for name, rounds := range tests {
		t.Run(name, func(t *testing.T) {
			var b backoff
			now := epoch
			for i, r := range rounds {
				now = now.Add(r.after)
				if got := b.next(r.revision, r.outcome, now); got != r.want {
					t.Errorf("round %d: pause %s, want %s", i, got, r.want)
				}
			}
		})
	}
}

func TestBackoffRecordSuccess(t *testing.T) {
	var b backoff
	b.next(current, outcome{ended: 1, newestEnded: epoch}, epoch)
	b.recordSuccess(older)
	if got := b.next(current, outcome{}, epoch); got != time.Second {
		t.Errorf("pause %s after a success of others", got)
	}
	b.recordSuccess(current)
	if got := b.next(current, outcome{}, epoch); got != 0 {
		t.Errorf("pause %s after a success", got)
	}
}
