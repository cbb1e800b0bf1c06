// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"slices"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/controllers/quietperiod"
)

func TestBurstCountDelay(t *testing.T) {
	ms := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Millisecond) }
	tests := map[string]struct {
		stock int
		takes []int // milliseconds
		now   int
		want  time.Duration
	}{
		"no claims":                    {stock: 10, now: 0, want: 0},
		"just taken":                   {stock: 10, takes: []int{0}, now: 0, want: 100 * time.Millisecond},
		"waits for the rest":           {stock: 10, takes: []int{0}, now: 30, want: 70 * time.Millisecond},
		"quiet":                        {stock: 10, takes: []int{0}, now: 100, want: 0},
		"each take extends":            {stock: 10, takes: []int{0, 50, 90}, now: 100, want: 90 * time.Millisecond},
		"not beyond a turn":            {stock: 1000, takes: []int{0, 950, 990}, now: 995, want: 5 * time.Millisecond},
		"the turn is over":             {stock: 1000, takes: []int{0, 500, 999}, now: 1000, want: 0},
		"pool emptied":                 {stock: 2, takes: []int{0, 1}, now: 1, want: 0},
		"pool overdrawn":               {stock: 1, takes: []int{0, 1, 2}, now: 2, want: 0},
		"never counted: do not wait":   {stock: -1, takes: []int{0}, now: 0, want: 0},
		"a pool that was always empty": {stock: 0, takes: []int{0}, now: 0, want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := claimRate{quiet: 100 * time.Millisecond}
			if test.stock >= 0 {
				b.counted(test.stock, b.taken, 0)
			}
			for _, take := range test.takes {
				b.took(ms(take))
			}
			if got := b.countDelay(ms(test.now)); got != test.want {
				t.Errorf("waits %s, want %s", got, test.want)
			}
			b.counted(10, b.taken, 0)
			if got := b.countDelay(ms(test.now)); got != 0 {
				t.Errorf("waits %s for takes that were counted", got)
			}
		})
	}
}

func TestBurstRefillDelay(t *testing.T) {
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	var run []int // a claim every 50 ms, for more than five seconds
	for ms := 0; ms < 6000; ms += 50 {
		run = append(run, ms)
	}
	tests := map[string]struct {
		stock int // after the takes
		takes []int
		now   int
		want  time.Duration
	}{
		"no claims":              {stock: 100, want: 0},
		"just taken":             {stock: 99, takes: []int{0}, want: 100 * time.Millisecond},
		"quiet":                  {stock: 99, takes: []int{0}, now: 100, want: 0},
		"half is left":           {stock: 50, takes: []int{0}, want: 100 * time.Millisecond},
		"less than half is left": {stock: 49, takes: []int{0}, want: 0},
		"for five seconds":       {stock: 99, takes: run[:99], now: 4900, want: 100 * time.Millisecond},
		"and no longer":          {stock: 99, takes: run[:100], now: 4950, want: 50 * time.Millisecond},
		"patience is over":       {stock: 99, takes: run, now: 5951, want: 0},
		"a pause begins anew":    {stock: 99, takes: append(slices.Clone(run), 6050), now: 6050, want: 100 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := claimRate{quiet: 100 * time.Millisecond}
			for _, take := range test.takes {
				b.took(at(take))
			}
			b.counted(test.stock, b.taken, 0)
			if got := b.refillDelay(100, at(test.now)); got != test.want {
				t.Errorf("waits %s, want %s", got, test.want)
			}
			if got := b.width(100, 16, at(test.now)); (got == 0) != (test.want > 0) {
				t.Errorf("width %d, and waits %s", got, test.want)
			}
		})
	}
	b := claimRate{quiet: time.Minute}
	b.took(epoch)
	b.counted(99, b.taken, 0)
	if got := b.refillDelay(100, epoch); got != time.Second {
		t.Errorf("the status is not written for %s", got)
	}
}

func TestBurstWidth(t *testing.T) {
	b := claimRate{quiet: 100 * time.Millisecond}
	width := func(after time.Duration) int { return b.width(100, 16, epoch.Add(after)) }

	if got := width(0); got != 16 {
		t.Errorf("without claims: %d", got)
	}
	b.counted(101, b.taken, 0)
	b.took(epoch)
	for taken, want := range map[int]int{0: 0, 50: 0, 51: 8, 75: 12, 100: 16, 150: 16} {
		b.counted(100-taken, b.taken, 0)
		if got := width(0); got != want {
			t.Errorf("claims run, %d of 100 taken: width %d, want %d", taken, got, want)
		}
	}
	last := quietperiod.MaxWait - quietperiod.MaxWait%(50*time.Millisecond)
	for now := 50 * time.Millisecond; now <= last; now += 50 * time.Millisecond {
		b.took(epoch.Add(now))
	}
	for taken, want := range map[int]int{0: 1, 25: 4, 50: 8, 75: 12, 100: 16} {
		b.counted(100-taken, b.taken, 0)
		if got := width(last); got != want {
			t.Errorf("claims run for long, %d of 100 taken: width %d, want %d", taken, got, want)
		}
	}
	b.counted(100, b.taken, 0)
	if got := width(last + 100*time.Millisecond); got != 16 {
		t.Errorf("quiet again: %d", got)
	}
	if got := b.width(0, 16, epoch.Add(last)); got != 16 {
		t.Errorf("set of size 0: %d", got)
	}
	if got := b.width(100, 1, epoch.Add(last)); got != 1 {
		t.Errorf("one worker: %d", got)
	}
}

func TestBurstEventDelay(t *testing.T) {
	b := claimRate{quiet: 100 * time.Millisecond}
	if got := b.eventDelay(); got != 100*time.Millisecond {
		t.Errorf("a set never counted gathers for %s", got)
	}
	for cost, want := range map[time.Duration]time.Duration{
		0:                      100 * time.Millisecond,
		time.Millisecond:       100 * time.Millisecond,
		30 * time.Millisecond:  300 * time.Millisecond,
		300 * time.Millisecond: time.Second,
	} {
		b.counted(1, b.taken, cost)
		if got := b.eventDelay(); got != want {
			t.Errorf("with counts of %s it gathers for %s, want %s", cost, got, want)
		}
	}
}

// What claims take while a pool is counted, the count may have found.
func TestBurstStock(t *testing.T) {
	b := claimRate{quiet: 100 * time.Millisecond}
	if got := b.stock; got != 0 {
		t.Errorf("of a set never counted %d are left", got)
	}
	b.took(epoch)
	before := b.taken
	b.took(epoch)
	b.took(epoch)
	b.counted(10, before, 0)
	if got := b.stock; got != 8 {
		t.Errorf("10 were found, 2 taken meanwhile: %d are left", got)
	}
	b.took(epoch)
	if got := b.stock; got != 7 {
		t.Errorf("and 1 after that: %d are left", got)
	}
	b.counted(7, b.taken, 0)
	if got := b.stock; got != 7 {
		t.Errorf("7 were found, none taken since: %d are left", got)
	}
}

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
		"more of the same round":              {ended(0, s), ended(s/4, 3*s/4), ended(s/4, s/2), ended(s/2, 2*s)},
		"pause goes on when they are removed": {ended(0, s), nothing(s/2, s/2), nothing(s/2, 0), ended(0, 2*s)},
		"a success ends it":                   {ended(0, s), {s / 2, works(5), current, 0}, ended(0, s)},
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

func TestBackoffSucceeded(t *testing.T) {
	var b backoff
	b.next(current, outcome{ended: 1, newestEnded: epoch}, epoch)
	b.succeeded(older)
	if got := b.next(current, outcome{}, epoch); got != time.Second {
		t.Errorf("pause %s after a success of others", got)
	}
	b.succeeded(current)
	if got := b.next(current, outcome{}, epoch); got != 0 {
		t.Errorf("pause %s after a success", got)
	}
}
