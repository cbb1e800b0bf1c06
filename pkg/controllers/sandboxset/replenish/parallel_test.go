// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func TestSlowStart(t *testing.T) {
	refused := errors.New("refused")
	tests := map[string]struct {
		n, failFrom int // calls from failFrom on fail
		stopAfter   int // batches; 0 is never
		calls, done int
		err         error
	}{
		"nothing":                {n: 0, failFrom: 9},
		"one":                    {n: 1, failFrom: 9, calls: 1, done: 1},
		"several batches":        {n: 20, failFrom: 99, calls: 20, done: 20},
		"beyond the batch limit": {n: 1000, failFrom: 9999, calls: 1000, done: 1000},
		"first fails":            {n: 1000, failFrom: 0, calls: 1, done: 0, err: refused},
		"third batch fails":      {n: 1000, failFrom: 5, calls: 7, done: 5, err: refused},
		"width 0 stops":          {n: 1000, failFrom: 9999, stopAfter: 3, calls: 7, done: 7},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			batches := 0
			seen := make([]atomic.Bool, test.n)
			width := func() int {
				if batches++; test.stopAfter != 0 && batches > test.stopAfter {
					return 0
				}
				return 4
			}
			done, err := slowStart(t.Context(), test.n, width, func(i int) error {
				calls.Add(1)
				if seen[i].Swap(true) {
					t.Errorf("call %d twice", i)
				}
				if i >= test.failFrom {
					return refused
				}
				return nil
			})
			if int(calls.Load()) != test.calls || done != test.done || !errors.Is(err, test.err) {
				t.Errorf("%d calls, %d done, %v; want %d, %d, %v", calls.Load(), done, err, test.calls, test.done, test.err)
			}
		})
	}
}

func TestSlowStartKeepsToItsParallelism(t *testing.T) {
	var running, tooMany atomic.Int64
	release := make(chan struct{})
	go func() {
		for range 200 {
			release <- struct{}{}
		}
	}()
	done, err := slowStart(t.Context(), 200, func() int { return 3 }, func(int) error {
		if running.Add(1) > 3 {
			tooMany.Add(1)
		}
		<-release
		running.Add(-1)
		return nil
	})
	if done != 200 || err != nil || tooMany.Load() > 0 {
		t.Errorf("%d done, %v, %d times more than 3 at once", done, err, tooMany.Load())
	}
}

func TestSlowStartStopsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	done, err := slowStart(ctx, 1000, func() int { return 2 }, func(int) error {
		once.Do(cancel)
		return nil
	})
	if done != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d done, %v", done, err)
	}
}
