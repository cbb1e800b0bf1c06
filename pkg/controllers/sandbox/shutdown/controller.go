// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shutdown deletes sandboxes whose spec.shutdownTime has passed.
package shutdown

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// maxBackoff bounds how long a failed delete waits for its next try.
const maxBackoff = time.Minute

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Controller deletes sandboxes at their shutdown time.
type Controller struct {
	client  client.Client
	clock   clock.PassiveClock
	workers int
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller that deletes up to workers sandboxes at a time.
func New(c client.Client, clk clock.PassiveClock, workers int) *Controller {
	return &Controller{client: c, clock: clk, workers: workers}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandbox-shutdown" }

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

// events queues a sandbox for its shutdown time. The many that have none cost
// nothing. One whose time is moved, or far away, is queued for earlier, and Reconcile
// sees that it is not due.
func (c *Controller) events() handler.EventHandler {
	enqueue := func(object client.Object, q queue) {
		sandbox, ok := object.(*v1alpha1.Sandbox)
		if !ok {
			return
		}
		now := c.clock.Now()
		if due, ok := deadline.Shutdown(sandbox, now); ok {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(sandbox)}, deadline.Wait(due, now))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			enqueue(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			enqueue(e.ObjectNew, q)
		},
	}
}

// Reconcile deletes the sandbox if its time has come.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	sandbox := &v1alpha1.Sandbox{}
	if err := c.client.Get(ctx, req.NamespacedName, sandbox, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting Sandbox %s: %w", req, err)
	}
	now := c.clock.Now()
	due, ok := deadline.Shutdown(sandbox, now)
	if !ok {
		return reconcile.Result{}, nil
	}
	if left := deadline.Wait(due, now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	// Only the very sandbox that was judged: its time may just have been extended,
	// or a claim may just have taken it and given it another time. Then there is an
	// event on its way about it.
	err := c.client.Delete(ctx, sandbox, client.Preconditions{
		UID:             new(sandbox.UID),
		ResourceVersion: new(sandbox.ResourceVersion),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("deleting Sandbox %s at its shutdown time: %w", req, err)
	}
	log.FromContext(ctx).V(2).Info("Deleted sandbox at its shutdown time", "shutdownTime", due)
	return reconcile.Result{}, nil
}
