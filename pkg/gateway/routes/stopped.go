// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// stopReportTimeout is how long the watch may take to report a sandbox that was stopped.
const stopReportTimeout = time.Second

// WaitUntilStopped waits until the watch has reported that the sandbox of an id does not run, for
// stopReportTimeout at most.
func (t *Table) WaitUntilStopped(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, stopReportTimeout)
	defer cancel()
	backoff := wait.Backoff{Duration: time.Millisecond, Factor: 2, Steps: 6, Cap: 50 * time.Millisecond}
	// If the watch is late, it reports the sandbox later.
	_ = backoff.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		route, known := t.Peek(id)
		return !known || route.State != Running, nil
	})
}
