// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// end works on a set that is being deleted. Mostly there is nothing to do: its
// sandboxes follow it, as their owner. One that is deleted in the foreground stays
// until they are gone; each deletion of one brings the set here again.
func (c *Controller) end(ctx context.Context, set *v1alpha1.SandboxSet) (reconcile.Result, error) {
	if !slices.Contains(set.Finalizers, v1alpha1.FinalizerPool) {
		return reconcile.Result{}, nil
	}
	key := client.ObjectKeyFromObject(set)
	creates, _ := c.expectations.snapshot(key)
	left, err := c.pool.ControlledBy(set.UID)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case len(creates) > 0:
		// Made in the last moment. If the cache has missed them, they are waited for
		// until the expectations run out.
		return reconcile.Result{RequeueAfter: expectationTTL}, nil
	case len(left) == 0:
		return reconcile.Result{}, c.letGo(ctx, set)
	}
	return reconcile.Result{}, errors.Join(parallel(len(left), c.options.RefillConcurrency, func(i int) error {
		return c.removeWith(ctx, left[i])
	})...)
}

// removeWith deletes a sandbox of a set that is deleted in the foreground, in the
// foreground as well, and only as it was seen: one that was claimed since is none of
// the set's.
func (c *Controller) removeWith(ctx context.Context, sandbox *v1alpha1.Sandbox) error {
	if sandbox.DeletionTimestamp != nil {
		return nil
	}
	err := c.client.Delete(ctx, sandbox, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{
		UID:             new(sandbox.UID),
		ResourceVersion: new(sandbox.ResourceVersion),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting Sandbox %s/%s with its set: %w", sandbox.Namespace, sandbox.Name, err)
	}
	return nil
}

// letGo takes the finalizer away. Who has changed the set meanwhile brings it here
// again.
func (c *Controller) letGo(ctx context.Context, set *v1alpha1.SandboxSet) error {
	finalizers := []string{} // not nil, which would leave them as they are
	for _, finalizer := range set.Finalizers {
		if finalizer != v1alpha1.FinalizerPool {
			finalizers = append(finalizers, finalizer)
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": set.ResourceVersion,
		"finalizers":      finalizers,
	}})
	if err != nil {
		return err
	}
	target := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}
	err = c.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("letting go of SandboxSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return nil
}
