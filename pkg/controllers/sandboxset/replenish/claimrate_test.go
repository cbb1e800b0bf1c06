// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"slices"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/controllers/quietperiod"
)

func TestCountDelay(t *testing.T) {
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
				b.recordCount(test.stock, b.claimed, 0)
			}
			for _, take := range test.takes {
				b.recordClaim(ms(take))
			}
			if got := b.countDelay(ms(test.now)); got != test.want {
				t.Errorf("waits %s, want %s", got, test.want)
			}
			b.recordCount(10, b.claimed, 0)
			if got := b.countDelay(ms(test.now)); got != 0 {
				t.Errorf("waits %s for takes that were counted", got)
			}
		})
	}
}

func TestRefillDelay(t *testing.T) {
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
				b.recordClaim(at(take))
			}
			b.recordCount(test.stock, b.claimed, 0)
			if got := b.refillDelay(100, at(test.now)); got != test.want {
				t.Errorf("waits %s, want %s", got, test.want)
			}
			if got := b.parallelism(100, 16, at(test.now)); (got == 0) != (test.want > 0) {
				t.Errorf("width %d, and waits %s", got, test.want)
			}
		})
	}
	b := claimRate{quiet: time.Minute}
	b.recordClaim(epoch)
	b.recordCount(99, b.claimed, 0)
	if got := b.refillDelay(100, epoch); got != time.Second {
		t.Errorf("the status is not written for %s", got)
	}
}

func TestParallelism(t *testing.T) {
	b := claimRate{quiet: 100 * time.Millisecond}
	width := func(after time.Duration) int { return b.parallelism(100, 16, epoch.Add(after)) }

	if got := width(0); got != 16 {
		t.Errorf("without claims: %d", got)
	}
	b.recordCount(101, b.claimed, 0)
	b.recordClaim(epoch)
	for taken, want := range map[int]int{0: 0, 50: 0, 51: 8, 75: 12, 100: 16, 150: 16} {
		b.recordCount(100-taken, b.claimed, 0)
		if got := width(0); got != want {
			t.Errorf("claims run, %d of 100 taken: width %d, want %d", taken, got, want)
		}
	}
	last := quietperiod.MaxWait - quietperiod.MaxWait%(50*time.Millisecond)
	for now := 50 * time.Millisecond; now <= last; now += 50 * time.Millisecond {
		b.recordClaim(epoch.Add(now))
	}
	for taken, want := range map[int]int{0: 1, 25: 4, 50: 8, 75: 12, 100: 16} {
		b.recordCount(100-taken, b.claimed, 0)
		if got := width(last); got != want {
			t.Errorf("claims run for long, %d of 100 taken: width %d, want %d", taken, got, want)
		}
	}
	b.recordCount(100, b.claimed, 0)
	if got := width(last + 100*time.Millisecond); got != 16 {
		t.Errorf("quiet again: %d", got)
	}
	if got := b.parallelism(0, 16, epoch.Add(last)); got != 16 {
		t.Errorf("set of size 0: %d", got)
	}
	if got := b.parallelism(100, 1, epoch.Add(last)); got != 1 {
		t.Errorf("one worker: %d", got)
	}
}

func TestEventDelay(t *testing.T) {
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
		b.recordCount(1, b.claimed, cost)
		if got := b.eventDelay(); got != want {
			t.Errorf("with counts of %s it gathers for %s, want %s", cost, got, want)
		}
	}
}

// What claims take while a pool is counted, the count may have found.
func TestAvailableLeft(t *testing.T) {
	b := claimRate{quiet: 100 * time.Millisecond}
	if got := b.availableLeft; got != 0 {
		t.Errorf("of a set never counted %d are left", got)
	}
	b.recordClaim(epoch)
	before := b.claimed
	b.recordClaim(epoch)
	b.recordClaim(epoch)
	b.recordCount(10, before, 0)
	if got := b.availableLeft; got != 8 {
		t.Errorf("10 were found, 2 taken meanwhile: %d are left", got)
	}
	b.recordClaim(epoch)
	if got := b.availableLeft; got != 7 {
		t.Errorf("and 1 after that: %d are left", got)
	}
	b.recordCount(7, b.claimed, 0)
	if got := b.availableLeft; got != 7 {
		t.Errorf("7 were found, none taken since: %d are left", got)
	}
}
