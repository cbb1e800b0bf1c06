// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package lifetime

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// longestWait is after what time an object is looked at again at the latest. A wait does
// not see that the clock is set, and a queue keeps what waits in it, even if the object is
// deleted meanwhile. To look costs no request.
const longestWait = 5 * time.Minute

// AgainError is what Timer.Act returns where it is to be called once more, after this time.
type AgainError time.Duration

// Error says when.
func (e AgainError) Error() string { return "to be continued after " + time.Duration(e).String() }

// Timer is a controller that acts on objects of one kind when their time comes, without
// polling. All fields are required.
type Timer[T client.Object] struct {
	// Controller is the name of the controller in logs and metrics.
	Controller string
	// Kind is the kind of the objects.
	Kind string
	// Client reads from the cache and writes.
	Client client.Client
	// Clock is the clock.
	Clock clock.PassiveClock
	// Workers is how many objects are worked on at the same time.
	Workers int
	// Empty returns an empty object.
	Empty func() T
	// Due returns when the time of an object comes, and reports whether it ever does.
	Due func(object T, now time.Time) (time.Time, bool)
	// Act acts on an object whose time, due, has come. It must act on the very version
	// that it is given: the time may just have been extended. An error that the object
	// is another one by now, or gone, is no failure: there is an event on its way. What
	// continues later, without an event, is an AgainError.
	Act func(ctx context.Context, object T, due, now time.Time) error
}

var _ reconcile.Reconciler = (*Timer[client.Object])(nil)

// Name is the name of the controller in logs and metrics.
func (t *Timer[T]) Name() string { return t.Controller }

// Register adds the controller to a manager.
func (t *Timer[T]) Register(_ context.Context, mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(t.Name()).
		WithOptions(queue.Options(t.Workers)).
		Watches(t.Empty(), t.events(), builder.WithPredicates(predicate.NewPredicateFuncs(t.ends))).
		Complete(t)
}

// ends reports whether the time of an object ever comes. The many that have none cost
// nothing more than this.
func (t *Timer[T]) ends(object client.Object) bool {
	typed, ok := object.(T)
	if !ok {
		return false
	}
	_, ok = t.Due(typed, t.Clock.Now())
	return ok
}

// events queues an object for its time. An object whose time moves, or is far away, is
// queued for earlier, and Reconcile sees that it is not due.
func (t *Timer[T]) events() handler.EventHandler {
	enqueue := func(object client.Object, q queue.Interface) {
		typed, ok := object.(T)
		if !ok {
			return
		}
		now := t.Clock.Now()
		if due, ok := t.Due(typed, now); ok {
			q.AddAfter(queue.RequestFor(object), wait(due, now))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue.Interface) { enqueue(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue.Interface) { enqueue(e.ObjectNew, q) },
	}
}

// Reconcile acts on the object if its time has come.
func (t *Timer[T]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	object := t.Empty()
	if err := t.Client.Get(ctx, req.NamespacedName, object, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting %s %s: %w", t.Kind, req, err)
	}
	now := t.Clock.Now()
	due, ok := t.Due(object, now)
	if !ok {
		return reconcile.Result{}, nil
	}
	if left := wait(due, now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	err := t.Act(ctx, object, due, now)
	if again := (AgainError)(0); errors.As(err, &again) {
		return reconcile.Result{RequeueAfter: time.Duration(again)}, nil
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, err
}

// Delete deletes the very version of an object that was judged.
func Delete(ctx context.Context, c client.Client, kind string, object client.Object, o ...client.DeleteOption) error {
	err := c.Delete(ctx, object, append(o, client.Preconditions{
		UID:             new(object.GetUID()),
		ResourceVersion: new(object.GetResourceVersion()),
	})...)
	if err != nil {
		return fmt.Errorf("deleting %s %s, whose time has come: %w", kind, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

func wait(until, now time.Time) time.Duration { return min(until.Sub(now), longestWait) }
