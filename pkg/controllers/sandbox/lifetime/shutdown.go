// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package lifetime

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// NewShutdown returns a controller that deletes sandboxes whose spec.shutdownTime has
// passed, up to workers at a time.
func NewShutdown(c client.Client, clk clock.PassiveClock, workers int) *Timer[*v1alpha1.Sandbox] {
	return &Timer[*v1alpha1.Sandbox]{
		Controller: "sandbox-shutdown", Kind: "Sandbox", Client: c, Clock: clk, Workers: workers,
		Empty: emptySandbox,
		Due:   shutdownTime,
		Act: func(ctx context.Context, sandbox *v1alpha1.Sandbox, due, _ time.Time) error {
			if err := Delete(ctx, c, "Sandbox", sandbox); err != nil {
				return err
			}
			log.FromContext(ctx).V(2).Info("Deleted sandbox at its shutdown time", "shutdownTime", due)
			return nil
		},
	}
}
