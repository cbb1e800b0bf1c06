// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Patience is how long a test waits for what must come. It is no measure of speed:
// machines that run tests are busy. It decides nothing but when a failing test gives up.
const Patience = 5 * time.Minute

// intervals are between two checks: about a tenth of the wait so far, because each check
// takes time from what it waits for.
var intervals = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.1, Steps: 100, Cap: 500 * time.Millisecond}

// Eventually waits until check returns nil, and fails the test with the last error of
// check when Patience has ended. A check that finds what no waiting mends may fail the
// test itself: it runs in the goroutine of the caller.
func Eventually(ctx context.Context, t testing.TB, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("not checked yet")
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	err := intervals.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		// A check that was cut short by the end of the wait has nothing to report.
		if err := check(ctx); err == nil || ctx.Err() == nil {
			last = err
		}
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v; at last: %v", err, last)
	}
}
