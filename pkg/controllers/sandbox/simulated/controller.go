// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulated plays the part of pods where there is no cluster: a set time
// after its creation a sandbox is Running and has an address, at which nothing
// listens. The API, the store and the allocation around it are the real ones.
package simulated

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	// maxBackoff bounds how long a failed write waits for its next try.
	maxBackoff = time.Minute
	// conflictDelay gives the cache time to show what a write collided with.
	conflictDelay = 50 * time.Millisecond
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Options say how sandboxes are simulated.
type Options struct {
	// Workers is how many sandboxes are started at the same time.
	Workers int
	// StartDelay is how long a sandbox takes from its creation to Running.
	StartDelay time.Duration
}

// Controller simulates the start of sandboxes.
type Controller struct {
	client  client.Client
	clock   clock.PassiveClock
	options Options
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller.
func New(c client.Client, clk clock.PassiveClock, o Options) *Controller {
	return &Controller{client: c, clock: clk, options: o}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandbox-simulated" }

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: c.options.Workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				5*time.Millisecond, maxBackoff),
		}).
		Watches(&v1alpha1.Sandbox{}, c.events()).
		Complete(c)
}

// events queues a sandbox for when it is to run. One that runs already is not
// queued, so the writes of claims cost nothing here.
//
// Creation times have whole seconds only, so the delay counts from when the
// sandbox was seen to come. For those that were there before this program, the
// creation time has to do.
func (c *Controller) events() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if sandbox, ok := e.Object.(*v1alpha1.Sandbox); ok && waits(sandbox) {
				delay := c.options.StartDelay
				if e.IsInInitialList {
					delay = c.left(sandbox)
				}
				q.AddAfter(requestFor(sandbox), delay)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, okBefore := e.ObjectOld.(*v1alpha1.Sandbox)
			after, okAfter := e.ObjectNew.(*v1alpha1.Sandbox)
			if okBefore && okAfter && waits(after) && (!waits(before) || before.UID != after.UID) {
				q.AddAfter(requestFor(after), c.options.StartDelay)
			}
		},
	}
}

// Reconcile lets the sandbox run if it is time.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	sandbox := &v1alpha1.Sandbox{}
	if err := c.client.Get(ctx, req.NamespacedName, sandbox, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting Sandbox %s: %w", req, err)
	}
	if !waits(sandbox) {
		return reconcile.Result{}, nil
	}
	if left := c.left(sandbox); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	status, err := statusOf(sandbox, c.clock.Now())
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	err = c.patchStatus(ctx, sandbox, status)
	switch {
	case apierrors.IsConflict(err):
		// It was changed, or is another one of that name by now: look again.
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("writing the status of Sandbox %s: %w", req, err)
	}
	return reconcile.Result{}, nil
}

// left is how long it takes at most until the sandbox is to run.
func (c *Controller) left(sandbox *v1alpha1.Sandbox) time.Duration {
	return sandbox.CreationTimestamp.Add(c.options.StartDelay).Sub(c.clock.Now())
}

// waits says whether a sandbox is still to be started.
func waits(sandbox *v1alpha1.Sandbox) bool {
	if sandbox.DeletionTimestamp != nil || sandbox.Spec.Template == nil {
		return false
	}
	return sandbox.Status.Phase == "" || sandbox.Status.Phase == v1alpha1.SandboxPending
}

// patchStatus writes the status of the very sandbox that was read, and not of
// another one that has its name by now. Nobody else writes to a sandbox that does
// not run yet, as a rule, so this hardly ever collides with anything.
func (c *Controller) patchStatus(ctx context.Context, sandbox *v1alpha1.Sandbox, status v1alpha1.SandboxStatus) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": sandbox.ResourceVersion},
		"status":   status,
	})
	if err != nil {
		return err
	}
	target := &v1alpha1.Sandbox{}
	target.Namespace, target.Name = sandbox.Namespace, sandbox.Name
	return c.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
}

func requestFor(sandbox *v1alpha1.Sandbox) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(sandbox)}
}
