// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package lifetime

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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxBackoff bounds how long a failed write waits for its next try.
const maxBackoff = time.Minute

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// TimerOptions say what a Timer does, and when. All are required.
type TimerOptions struct {
	// Name is the name of the controller in logs and metrics.
	Name string
	// Client reads from the cache.
	Client client.Client
	// Clock tells the time.
	Clock clock.PassiveClock
	// Workers is how many sandboxes are worked on at the same time.
	Workers int
	// Due is when the time of a sandbox comes, and whether ever.
	Due func(sandbox *v1alpha1.Sandbox, now time.Time) (time.Time, bool)
	// Act does what is to be done with a sandbox whose time, due, has come. It has to
	// do that with the very object that was judged: its time may just have been
	// extended, or a claim may just have given it another. An answer that it is
	// another one by now, or none, is no failure: there is an event on its way.
	Act func(ctx context.Context, sandbox *v1alpha1.Sandbox, due, now time.Time) error
}

// Timer is a controller that acts on sandboxes when their time comes, without polling.
type Timer struct {
	options TimerOptions
}

var _ reconcile.Reconciler = (*Timer)(nil)

// NewTimer returns a Timer.
func NewTimer(o TimerOptions) *Timer { return &Timer{options: o} }

// Name is the name of the controller in logs and metrics.
func (c *Timer) Name() string { return c.options.Name }

// Register adds the controller to a manager.
func (c *Timer) Register(_ context.Context, mgr ctrl.Manager) error {
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

// events queues a sandbox for its time. The many that have none cost nothing. One
// whose time is moved, or far away, is queued for earlier, and Reconcile sees that it
// is not due.
func (c *Timer) events() handler.EventHandler {
	enqueue := func(object client.Object, q queue) {
		sandbox, ok := object.(*v1alpha1.Sandbox)
		if !ok {
			return
		}
		now := c.options.Clock.Now()
		if due, ok := c.options.Due(sandbox, now); ok {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(sandbox)}, wait(due, now))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { enqueue(e.ObjectNew, q) },
	}
}

// Reconcile acts on the sandbox if its time has come.
func (c *Timer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	sandbox := &v1alpha1.Sandbox{}
	if err := c.options.Client.Get(ctx, req.NamespacedName, sandbox, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting Sandbox %s: %w", req, err)
	}
	now := c.options.Clock.Now()
	due, ok := c.options.Due(sandbox, now)
	if !ok {
		return reconcile.Result{}, nil
	}
	if left := wait(due, now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	err := c.options.Act(ctx, sandbox, due, now)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, err
}
