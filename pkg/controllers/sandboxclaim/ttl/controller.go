// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ttl deletes claims that have been Completed for longer than their
// spec.ttlAfterCompleted. It never touches a sandbox: those of a claim with
// reclaimPolicy Delete are owned by it and go the way of all owned objects.
package ttl

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxBackoff bounds how long a failed delete waits for its next try.
const maxBackoff = time.Minute

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Controller deletes claims after their time to live.
type Controller struct {
	client  client.Client
	clock   clock.PassiveClock
	workers int
	// records: an event is recorded for each deletion, once there is a recorder.
	records  bool
	recorder recorder.EventRecorder
}

var _ reconcile.Reconciler = (*Controller)(nil)

// EventTTLDelete is the reason of the event that a claim is deleted because its
// time to live is over. It is OpenKruise's.
const EventTTLDelete = "SandboxClaimTTLDelete"

// New returns a Controller that deletes up to workers claims at a time. With events
// it records one for each, which is a write.
func New(c client.Client, clk clock.PassiveClock, workers int, events bool) *Controller {
	return &Controller{client: c, clock: clk, workers: workers, records: events}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandboxclaim-ttl" }

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	if c.records {
		c.recorder = mgr.GetEventRecorder(c.Name())
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: c.workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				5*time.Millisecond, maxBackoff),
		}).
		Watches(&v1alpha1.SandboxClaim{}, c.events()).
		Complete(c)
}

// events queues a claim for the time when it is due, so that a claim costs one
// reconcile in its life and a burst of claims none.
func (c *Controller) events() handler.EventHandler {
	enqueue := func(object client.Object, q queue) {
		claim, ok := object.(*v1alpha1.SandboxClaim)
		if !ok {
			return
		}
		if expiry, expires := expiryOf(claim); expires {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)}, expiry.Sub(c.clock.Now()))
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

// Reconcile deletes the claim if it is due.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &v1alpha1.SandboxClaim{}
	if err := c.client.Get(ctx, req.NamespacedName, claim, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting SandboxClaim %s: %w", req, err)
	}
	expiry, expires := expiryOf(claim)
	if !expires {
		return reconcile.Result{}, nil
	}
	if left := expiry.Sub(c.clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	// Only the very claim that was judged: the TTL may just have been extended, or
	// the name given to a new claim. Then there is an event on its way about it.
	err := c.client.Delete(ctx, claim, client.Preconditions{
		UID:             new(claim.UID),
		ResourceVersion: new(claim.ResourceVersion),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("deleting expired SandboxClaim %s: %w", req, err)
	}
	log.FromContext(ctx).V(2).Info("Deleted expired claim", "expiry", expiry)
	if c.recorder != nil {
		c.recorder.Eventf(claim, nil, corev1.EventTypeNormal, EventTTLDelete, "Delete", "Deleted, its ttlAfterCompleted was over at %s",
			expiry.UTC().Format(time.RFC3339))
	}
	return reconcile.Result{}, nil
}

// expiryOf is when a claim is to be deleted, if it ever is.
func expiryOf(claim *v1alpha1.SandboxClaim) (time.Time, bool) {
	if claim.DeletionTimestamp != nil ||
		claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted ||
		claim.Status.CompletionTime == nil {
		return time.Time{}, false
	}
	ttl := v1alpha1.DefaultTTLAfterCompleted
	if claim.Spec.TTLAfterCompleted != nil {
		ttl = claim.Spec.TTLAfterCompleted.Duration
	}
	if ttl < 0 {
		return time.Time{}, false
	}
	return claim.Status.CompletionTime.Add(ttl), true
}
