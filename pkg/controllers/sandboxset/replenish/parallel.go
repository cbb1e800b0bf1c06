// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"sync"
)

// maxBatch bounds how long a batch can be, and so how late a slow start notices
// that its parallelism has changed.
const maxBatch = 64

// slowStart calls do(0) ... do(n-1), in batches of 1, 2, 4, ... calls, and stops
// after the first batch with a failure: what refuses one sandbox (a quota, a
// webhook) mostly refuses all, and thousands of refused calls are of no use. Before each
// batch, parallelism says how many calls may run at once; 0 stops.
//
// It returns how many calls succeeded, and the first failure.
func slowStart(ctx context.Context, n int, parallelism func() int, do func(int) error) (int, error) {
	done := 0
	for batch := 1; done < n; batch = min(2*batch, maxBatch) {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		atOnce := parallelism()
		if atOnce <= 0 {
			return done, nil
		}
		todo := min(batch, n-done)
		first := done
		errs := parallel(todo, atOnce, func(i int) error { return do(first + i) })
		done += todo - len(errs)
		if len(errs) > 0 {
			return done, errs[0]
		}
	}
	return done, nil
}

// parallel calls do(0) ... do(n-1), at most atOnce at a time, waits for all and
// returns the failures.
func parallel(n, atOnce int, do func(int) error) []error {
	if n <= 0 {
		return nil
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		next int
		errs []error
	)
	take := func(err error) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		}
		i := next
		next++
		return i, i < n
	}
	for range min(max(atOnce, 1), n) {
		wg.Go(func() {
			for i, ok := take(nil); ok; {
				i, ok = take(do(i))
			}
		})
	}
	wg.Wait()
	return errs
}
