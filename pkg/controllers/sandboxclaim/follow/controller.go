// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/index"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandboxclaim/holdings"
)

// watchLag gives the cache time to show what the server has already.
const watchLag = 100 * time.Millisecond

// Controller keeps the statuses of claims that are Completed true.
type Controller struct {
	client  client.Client
	clock   clock.PassiveClock
	workers int
	finder  holdings.Finder
	pace    *pace
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller that works on up to workers claims at a time. It reads and
// writes through c; reader asks the server itself.
func New(c client.Client, reader client.Reader, clk clock.PassiveClock, workers int) *Controller {
	return &Controller{client: c, clock: clk, workers: workers, finder: holdings.Finder{Reader: reader}, pace: newPace(clk)}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandboxclaim-follow" }

// Register adds the controller to a manager.
func (c *Controller) Register(ctx context.Context, mgr ctrl.Manager) error {
	cache, err := index.NewByClaim(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	c.finder.Cache = cache
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(queue.Options(c.workers)).
		Watches(&v1alpha1.SandboxClaim{}, c.claimEvents()).
		Watches(&v1alpha1.Sandbox{}, c.sandboxEvents(), builder.WithPredicates(predicate.Funcs{CreateFunc: isNews})).
		Complete(c)
}

// Reconcile writes what is not true of the status of a claim, if it is time.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &v1alpha1.SandboxClaim{}
	if err := c.client.Get(ctx, req.NamespacedName, claim, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			c.pace.forget(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting SandboxClaim %s: %w", req, err)
	}
	if !isFollowed(claim) {
		return reconcile.Result{}, nil
	}
	bound, sure, err := c.finder.Cached(claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	all := members(claim, bound)
	conditions := conditionsOf(claim, all, c.clock.Now())
	patch := changes(claim, all, conditions)
	if len(patch) == 0 {
		c.pace.trust(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	left, repeatable := c.pace.left(req.NamespacedName), isRepeatable(claim, conditions, len(all))
	if repeatable {
		left = max(left, c.pace.repeated.Delay(req.NamespacedName))
	}
	if left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if !sure {
		if sure, err = c.ask(ctx, claim, bound); err != nil || !sure {
			return reconcile.Result{RequeueAfter: watchLag}, err
		}
	}
	return c.write(ctx, claim, len(all), patch, repeatable)
}

// ask asks the server whether the cache is right about the sandboxes of a claim, unless
// it may just be late.
func (c *Controller) ask(ctx context.Context, claim *v1alpha1.SandboxClaim, bound []*v1alpha1.Sandbox) (bool, error) {
	if !c.pace.doubt(client.ObjectKeyFromObject(claim)) {
		return false, nil
	}
	stored, err := c.finder.Stored(ctx, claim)
	if err != nil {
		return false, err
	}
	shown := sets.New[types.UID]()
	for _, sandbox := range bound {
		if sandbox.Annotations[v1alpha1.AnnotationStarting] == "" {
			shown.Insert(sandbox.UID)
		}
	}
	for _, sandbox := range stored {
		if sandbox.Annotations[v1alpha1.AnnotationStarting] == "" && !shown.Has(sandbox.UID) {
			return false, nil
		}
	}
	return true, nil
}

// write patches the status of the very version of a claim that was judged.
func (c *Controller) write(ctx context.Context, claim *v1alpha1.SandboxClaim, sandboxes int, patch []operation, repeatable bool) (reconcile.Result, error) {
	data, err := encode(patch)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("encoding a patch of SandboxClaim %s/%s: %w", claim.Namespace, claim.Name, err))
	}
	key := client.ObjectKeyFromObject(claim)
	target := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
	err = c.client.Status().Patch(ctx, target, client.RawPatch(types.JSONPatchType, data))
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: watchLag}, nil // it is another version by now
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("patching the status of SandboxClaim %s: %w", key, err)
	}
	c.pace.written(target, sandboxes, repeatable)
	// If the claim was deleted meanwhile, its deletion was handled before written recorded it.
	switch err := c.client.Get(ctx, key, target, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		c.pace.forget(key)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("getting SandboxClaim %s: %w", key, err)
	}
	return reconcile.Result{}, nil
}
