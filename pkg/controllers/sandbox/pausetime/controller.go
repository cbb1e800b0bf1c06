// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pausetime sets spec.paused of sandboxes whose spec.pauseTime has passed.
// How a sandbox is paused is none of its business.
package pausetime

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/deadline"
)

// maxBackoff bounds how long a failed write waits for its next try.
const maxBackoff = time.Minute

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Controller pauses sandboxes at their pause time.
type Controller struct {
	client  client.Client
	clock   clock.PassiveClock
	workers int
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller that pauses up to workers sandboxes at a time.
func New(c client.Client, clk clock.PassiveClock, workers int) *Controller {
	return &Controller{client: c, clock: clk, workers: workers}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandbox-pausetime" }

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: c.workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				5*time.Millisecond, maxBackoff),
		}).
		Watches(&v1alpha1.Sandbox{}, c.events()).
		Complete(c)
}

// events queues a sandbox for its pause time. The many that have none cost
// nothing. One whose time is moved, or far away, is queued for earlier, and Reconcile
// sees that it is not due.
func (c *Controller) events() handler.EventHandler {
	enqueue := func(object client.Object, q queue) {
		sandbox, ok := object.(*v1alpha1.Sandbox)
		if !ok {
			return
		}
		if at, ok := deadline.Pause(sandbox); ok {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(sandbox)}, deadline.Wait(at, c.clock.Now()))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { enqueue(e.ObjectNew, q) },
	}
}

// Reconcile pauses the sandbox if its time has come.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	sandbox := &v1alpha1.Sandbox{}
	if err := c.client.Get(ctx, req.NamespacedName, sandbox, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting Sandbox %s: %w", req, err)
	}
	due, ok := deadline.Pause(sandbox)
	if !ok {
		return reconcile.Result{}, nil
	}
	now := c.clock.Now()
	if left := deadline.Wait(due, now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if end, ok := deadline.Shutdown(sandbox, now); ok && !now.Before(end) {
		return reconcile.Result{}, nil // it is being deleted instead
	}
	patch, err := pausePatch(sandbox, now)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	target := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: sandbox.Name}}
	err = c.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return reconcile.Result{}, nil // there is an event on its way about it
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("pausing Sandbox %s at its pause time: %w", req, err)
	}
	log.FromContext(ctx).V(2).Info("Paused sandbox at its pause time", "pauseTime", due)
	return reconcile.Result{}, nil
}

// pausePatch pauses the very sandbox that was judged: its time may just have been
// extended. One that is to be kept for a while has its times moved by that; both,
// so that it is not paused again as soon as it is resumed.
func pausePatch(sandbox *v1alpha1.Sandbox, now time.Time) ([]byte, error) {
	spec := map[string]any{"paused": true}
	if until, ok := deadline.Retained(sandbox, now); ok {
		spec["shutdownTime"], spec["pauseTime"] = until, until
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": sandbox.ResourceVersion},
		"spec":     spec,
	})
}
