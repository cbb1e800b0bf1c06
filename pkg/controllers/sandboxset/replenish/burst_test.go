// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"slices"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/controllers/quietperiod"
)

func TestBurstHold(t *testing.T) {
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
			b := newBursts(100 * time.Millisecond)
			if test.stock >= 0 {
				b.counted(pool1, test.stock, b.taken(pool1), 0)
			}
			for _, take := range test.takes {
				b.took(pool1, ms(take))
			}
			if got := b.hold(pool1, ms(test.now)); got != test.want {
				t.Errorf("hold %s, want %s", got, test.want)
			}
			if got := b.hold(pool2, ms(test.now)); got != 0 {
				t.Errorf("another set waits %s", got)
			}
			b.counted(pool1, 10, b.taken(pool1), 0)
			if got := b.hold(pool1, ms(test.now)); got != 0 {
				t.Errorf("waits %s for takes that were looked at", got)
			}
			b.forget(pool1)
			if len(b.sets) != 0 || b.lull.InBurst(pool1, ms(test.now)) {
				t.Error("a deleted set is remembered")
			}
		})
	}
}

func TestBurstGiveWay(t *testing.T) {
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	var storm []int // a claim every 50 ms, for more than five seconds
	for ms := 0; ms < 6000; ms += 50 {
		storm = append(storm, ms)
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
		"for five seconds":       {stock: 99, takes: storm[:99], now: 4900, want: 100 * time.Millisecond},
		"and no longer":          {stock: 99, takes: storm[:100], now: 4950, want: 50 * time.Millisecond},
		"patience is over":       {stock: 99, takes: storm, now: 5951, want: 0},
		"a pause begins anew":    {stock: 99, takes: append(slices.Clone(storm), 6050), now: 6050, want: 100 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBursts(100 * time.Millisecond)
			for _, take := range test.takes {
				b.took(pool1, at(take))
			}
			b.counted(pool1, test.stock, b.taken(pool1), 0)
			if got := b.giveWay(pool1, 100, at(test.now)); got != test.want {
				t.Errorf("gives way for %s, want %s", got, test.want)
			}
			if got := b.width(pool1, 100, 16, at(test.now)); (got == 0) != (test.want > 0) {
				t.Errorf("width %d, and gives way for %s", got, test.want)
			}
		})
	}
	if got := newBursts(time.Hour).giveWay(pool1, 100, epoch); got != 0 {
		t.Errorf("a set without claims gives way for %s", got)
	}
	b := newBursts(time.Minute)
	b.took(pool1, epoch)
	b.counted(pool1, 99, b.taken(pool1), 0)
	if got := b.giveWay(pool1, 100, epoch); got != time.Second {
		t.Errorf("the status is not written for %s", got)
	}
}

func TestBurstWidth(t *testing.T) {
	b := newBursts(100 * time.Millisecond)
	width := func(after time.Duration) int { return b.width(pool1, 100, 16, epoch.Add(after)) }

	if got := width(0); got != 16 {
		t.Errorf("without claims: %d", got)
	}
	b.counted(pool1, 101, b.taken(pool1), 0)
	b.took(pool1, epoch)
	for taken, want := range map[int]int{0: 0, 50: 0, 51: 8, 75: 12, 100: 16, 150: 16} {
		b.counted(pool1, 100-taken, b.taken(pool1), 0)
		if got := width(0); got != want {
			t.Errorf("claims run, %d of 100 taken: width %d, want %d", taken, got, want)
		}
	}
	last := quietperiod.MaxWait - quietperiod.MaxWait%(50*time.Millisecond)
	for now := 50 * time.Millisecond; now <= last; now += 50 * time.Millisecond {
		b.took(pool1, epoch.Add(now))
	}
	for taken, want := range map[int]int{0: 1, 25: 4, 50: 8, 75: 12, 100: 16} {
		b.counted(pool1, 100-taken, b.taken(pool1), 0)
		if got := width(last); got != want {
			t.Errorf("claims run for long, %d of 100 taken: width %d, want %d", taken, got, want)
		}
	}
	b.counted(pool1, 100, b.taken(pool1), 0)
	if got := width(last + 100*time.Millisecond); got != 16 {
		t.Errorf("quiet again: %d", got)
	}
	if got := b.width(pool1, 0, 16, epoch.Add(last)); got != 16 {
		t.Errorf("set of size 0: %d", got)
	}
	if got := b.width(pool1, 100, 1, epoch.Add(last)); got != 1 {
		t.Errorf("one worker: %d", got)
	}
}

func TestBurstGather(t *testing.T) {
	b := newBursts(100 * time.Millisecond)
	if got := b.gather(pool1); got != 100*time.Millisecond {
		t.Errorf("a set never looked at gathers for %s", got)
	}
	for cost, want := range map[time.Duration]time.Duration{
		0:                      100 * time.Millisecond,
		time.Millisecond:       100 * time.Millisecond,
		30 * time.Millisecond:  300 * time.Millisecond,
		300 * time.Millisecond: time.Second,
	} {
		b.counted(pool1, 1, b.taken(pool1), cost)
		if got := b.gather(pool1); got != want {
			t.Errorf("with looks of %s it gathers for %s, want %s", cost, got, want)
		}
	}
}

// What claims take while a pool is looked at, the look may have found.
func TestBurstLeft(t *testing.T) {
	b := newBursts(100 * time.Millisecond)
	if got := b.left(pool1); got != 0 {
		t.Errorf("of a set never looked at %d are left", got)
	}
	b.took(pool1, epoch)
	before := b.taken(pool1)
	b.took(pool1, epoch)
	b.took(pool1, epoch)
	b.counted(pool1, 10, before, 0)
	if got := b.left(pool1); got != 8 {
		t.Errorf("10 were found, 2 taken meanwhile: %d are left", got)
	}
	b.took(pool1, epoch)
	if got := b.left(pool1); got != 7 {
		t.Errorf("and 1 after that: %d are left", got)
	}
	b.counted(pool1, 7, b.taken(pool1), 0)
	if got := b.left(pool1); got != 7 {
		t.Errorf("7 were found, none taken since: %d are left", got)
	}
}
