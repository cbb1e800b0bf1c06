// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"
	"time"
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
		"not beyond latest":            {stock: 1000, takes: []int{0, 950, 990}, now: 995, want: 5 * time.Millisecond},
		"latest reached":               {stock: 1000, takes: []int{0, 500, 999}, now: 1000, want: 0},
		"pool emptied":                 {stock: 2, takes: []int{0, 1}, now: 1, want: 0},
		"pool overdrawn":               {stock: 1, takes: []int{0, 1, 2}, now: 2, want: 0},
		"never counted: do not wait":   {stock: -1, takes: []int{0}, now: 0, want: 0},
		"a pool that was always empty": {stock: 0, takes: []int{0}, now: 0, want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBursts(100 * time.Millisecond)
			if test.stock >= 0 {
				b.counted(pool1, test.stock, 0)
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
			b.counted(pool1, 10, 0)
			if got := b.hold(pool1, ms(test.now)); got != 0 {
				t.Errorf("waits %s for takes that were looked at", got)
			}
			b.forget(pool1)
			if len(b.sets) != 0 {
				t.Error("a deleted set is remembered")
			}
		})
	}
}

func TestBurstWidth(t *testing.T) {
	b := newBursts(100 * time.Millisecond)
	width := func(after time.Duration) int { return b.width(pool1, 100, 16, epoch.Add(after)) }

	if got := width(0); got != 16 {
		t.Errorf("without claims: %d", got)
	}
	b.counted(pool1, 101, 0)
	b.took(pool1, epoch)
	for taken, want := range map[int]int{0: 1, 50: 8, 25: 4, 75: 12, 100: 16, 150: 16} {
		b.counted(pool1, 100-taken, 0)
		if got := width(0); got != want {
			t.Errorf("claims run, %d of 100 taken: width %d, want %d", taken, got, want)
		}
	}
	b.counted(pool1, 100, 0)
	if got := width(100 * time.Millisecond); got != 16 {
		t.Errorf("quiet again: %d", got)
	}
	if got := b.width(pool1, 0, 16, epoch); got != 16 {
		t.Errorf("set of size 0: %d", got)
	}
	if got := b.width(pool1, 100, 1, epoch); got != 1 {
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
		b.counted(pool1, 1, cost)
		if got := b.gather(pool1); got != want {
			t.Errorf("with looks of %s it gathers for %s, want %s", cost, got, want)
		}
	}
}
