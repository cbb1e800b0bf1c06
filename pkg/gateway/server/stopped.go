// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

// stoppedFor is how long the watch may take to report a sandbox that was stopped here.
const stoppedFor = time.Second

// stopped waits for the table of routes.
type stopped struct{ table *routes.Table }

// await returns when the table knows that a sandbox does not run, or after a moment.
func (s stopped) await(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, stoppedFor)
	defer cancel()
	pace := wait.Backoff{Duration: time.Millisecond, Factor: 2, Steps: 6, Cap: 50 * time.Millisecond}
	// What is not reported in time is reported later.
	_ = pace.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		route, known := s.table.Known(id)
		return !known || route.State != routes.Running, nil
	})
}
