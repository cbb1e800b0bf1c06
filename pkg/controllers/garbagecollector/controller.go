// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// Controller collects objects without owners, and finalizes owners without dependents.
type Controller struct {
	client  client.Client
	reader  client.Reader
	workers int
	// caches are those of the kinds of dependents.
	caches map[string]versioned
}

var _ reconcile.TypedReconciler[request] = (*Controller)(nil)

// New returns a Controller that deletes up to workers objects at a time. reader
// asks the server itself.
func New(c client.Client, reader client.Reader, workers int) *Controller {
	return &Controller{client: c, reader: reader, workers: workers}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandbox-orphaned" }

// Register adds the controller to a manager.
func (c *Controller) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	caches, err := cachesOf(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	c.caches = caches
	b := builder.TypedControllerManagedBy[request](mgr).
		Named(c.Name()).
		WithOptions(queue.OptionsFor(c.workers, func(r request) string { return r.Namespace }))
	for name, kind := range kinds {
		b.Watches(kind.object(), c.events(name))
	}
	return b.Complete(c)
}

// Reconcile looks at an object, as a dependent and as an owner.
func (c *Controller) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	object := kinds[req.kind].object()
	if err := c.client.Get(ctx, req.NamespacedName, object, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting %s: %w", req, err)
	}
	err := c.collect(ctx, req, object)
	if err == nil && waitsForDependents(object) {
		return c.finalize(ctx, req, object)
	}
	switch {
	case apierrors.IsConflict(err):
		// It changed, and may have other owners now.
		return reconcile.Result{RequeueAfter: watchLag}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("collecting %s: %w", req, err)
	}
	return reconcile.Result{}, nil
}
