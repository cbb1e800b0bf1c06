// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package lifetime

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// NewShutdown returns a controller that deletes sandboxes whose spec.shutdownTime has
// passed, up to workers at a time.
func NewShutdown(c client.Client, clk clock.PassiveClock, workers int) *Timer {
	return NewTimer(TimerOptions{
		Name: "sandbox-shutdown", Client: c, Clock: clk, Workers: workers,
		Due: shutdownTime,
		Act: func(ctx context.Context, sandbox *v1alpha1.Sandbox, due, _ time.Time) error {
			err := c.Delete(ctx, sandbox, client.Preconditions{
				UID:             new(sandbox.UID),
				ResourceVersion: new(sandbox.ResourceVersion),
			})
			if err != nil {
				return fmt.Errorf("deleting Sandbox %s/%s at its shutdown time: %w", sandbox.Namespace, sandbox.Name, err)
			}
			log.FromContext(ctx).V(2).Info("Deleted sandbox at its shutdown time", "shutdownTime", due)
			return nil
		},
	})
}
