// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package lifetime

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// NewPause returns a controller that sets spec.paused of sandboxes whose spec.pauseTime
// has passed, of up to workers at a time. Another controller pauses them.
func NewPause(c client.Client, clk clock.PassiveClock, workers int) *Timer[*v1alpha1.Sandbox] {
	return &Timer[*v1alpha1.Sandbox]{
		Controller: "sandbox-pausetime", Kind: "Sandbox", Client: c, Clock: clk, Workers: workers,
		Empty: emptySandbox,
		Due:   func(sandbox *v1alpha1.Sandbox, _ time.Time) (time.Time, bool) { return pauseTime(sandbox) },
		Act: func(ctx context.Context, sandbox *v1alpha1.Sandbox, due, now time.Time) error {
			return pause(ctx, c, sandbox, due, now)
		},
	}
}

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

func emptySandbox() *v1alpha1.Sandbox { return &v1alpha1.Sandbox{} }

func pause(ctx context.Context, c client.Client, sandbox *v1alpha1.Sandbox, due, now time.Time) error {
	if end, ok := shutdownTime(sandbox, now); ok && !now.Before(end) {
		return nil // it is being deleted instead
	}
	patch, err := pausePatch(sandbox, now)
	if err != nil {
		return reconcile.TerminalError(err)
	}
	target := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: sandbox.Name}}
	if err := c.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("pausing Sandbox %s/%s at its pause time: %w", sandbox.Namespace, sandbox.Name, err)
	}
	log.FromContext(ctx).V(2).Info("Paused sandbox at its pause time", "pauseTime", due)
	return nil
}

// pausePatch returns the patch that pauses the very version of the sandbox that was
// judged. It moves both times of a sandbox that is to be kept for a while, so that the
// sandbox is not paused again as soon as it is resumed.
func pausePatch(sandbox *v1alpha1.Sandbox, now time.Time) ([]byte, error) {
	spec := map[string]any{"paused": true}
	if until, ok := retainedUntil(sandbox, now); ok {
		spec["shutdownTime"], spec["pauseTime"] = until, until
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": sandbox.ResourceVersion},
		"spec":     spec,
	})
}
