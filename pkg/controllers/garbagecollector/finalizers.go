// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// pageSize is how many objects the server is asked for at once.
const pageSize = 500

// finalize removes the finalizer of an object as soon as it has no dependents. Those are
// collected by themselves (see collect), and each one that is queues the object again.
func (c *Controller) finalize(ctx context.Context, req request, object client.Object) (reconcile.Result, error) {
	n := 0
	if err := c.eachDependent(ctx, req.kind, object, func(request) { n++ }, client.Limit(1)); err != nil || n > 0 {
		return reconcile.Result{}, err
	}
	found, err := c.hasDependents(ctx, req.kind, object)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case found:
		return reconcile.Result{RequeueAfter: watchLag}, nil
	}
	finalizers := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), isCascading)
	err = c.patch(ctx, req, object, "finalizers", finalizers)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil // there is an event on its way
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("removing the finalizer of %s: %w", req, err)
	}
	return reconcile.Result{}, nil
}

// hasDependents asks the server whether an object without dependents in the caches has
// any: the caches may lag behind the one that showed the object, and a dependent that
// they show after the object is gone would be deleted, even if it was to be orphaned.
// The server is asked seldom: mostly the caches have shown something later than the
// deletion of the object, such as the deletion of its dependents.
func (c *Controller) hasDependents(ctx context.Context, kind string, owner client.Object) (bool, error) {
	for _, name := range kinds[kind].dependents {
		if c.isCurrent(name, owner) {
			continue
		}
		for next := ""; ; {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(name + "List"))
			err := c.reader.List(ctx, list, client.InNamespace(owner.GetNamespace()), client.Limit(pageSize), client.Continue(next))
			if err != nil {
				return false, fmt.Errorf("listing the dependents of %s %s/%s: %w", kind, owner.GetNamespace(), owner.GetName(), err)
			}
			for i := range list.Items {
				if slices.Contains(uids(&list.Items[i]), string(owner.GetUID())) {
					return true, nil
				}
			}
			if next = list.Continue; next == "" {
				break
			}
		}
	}
	return false, nil
}

// isCurrent reports whether the cache of a kind has everything that was written before an
// object. All kinds are in one store, with one count of revisions.
func (c *Controller) isCurrent(kind string, object client.Object) bool {
	cache := c.caches[kind]
	if cache == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(cache.LastStoreSyncResourceVersion(), object.GetResourceVersion())
	return err == nil && order >= 0 // an error: the cache does not know its revision
}
