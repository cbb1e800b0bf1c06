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

// page is how many objects the server is asked for at once.
const page = 500

// The API server puts one of these on what is deleted with --cascade=foreground or
// =orphan.
func isCollectors(finalizer string) bool {
	return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents
}

// isLeaving tells whether an object is being deleted and waits for what it owns.
func isLeaving(object client.Object) bool {
	return object.GetDeletionTimestamp() != nil && slices.ContainsFunc(object.GetFinalizers(), isCollectors)
}

// leave lets go of an object as soon as it owns nothing. What it owns sees to that
// by itself (see collect), and each that has done so brings the object here again.
func (c *Controller) leave(ctx context.Context, req request, object client.Object) (reconcile.Result, error) {
	n := 0
	if err := c.ownedBy(ctx, req.kind, object, func(request) { n++ }, client.Limit(1)); err != nil || n > 0 {
		return reconcile.Result{}, err
	}
	owns, err := c.owns(ctx, req.kind, object)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case owns:
		return reconcile.Result{RequeueAfter: watchLag}, nil
	}
	left := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), isCollectors)
	err = c.patch(ctx, req, object, "finalizers", left)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil // the change of it is an event
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("letting go of %s: %w", req, err)
	}
	return reconcile.Result{}, nil
}

// owns asks the server whether an object that owns nothing in the caches does own
// something: they may lag behind the cache that showed the object, and what they
// would show later were taken for the leavings of one that is gone, and deleted,
// even if it was to be left behind. It asks seldom: mostly the caches have shown
// something later than the deletion of the object, such as that of what it owned.
func (c *Controller) owns(ctx context.Context, kind string, owner client.Object) (bool, error) {
	for _, name := range kinds[kind].owns {
		if c.isAsNew(name, owner) {
			continue
		}
		for next := ""; ; {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(name + "List"))
			err := c.reader.List(ctx, list, client.InNamespace(owner.GetNamespace()), client.Limit(page), client.Continue(next))
			if err != nil {
				return false, fmt.Errorf("asking for what %s %s/%s owns: %w", kind, owner.GetNamespace(), owner.GetName(), err)
			}
			for i := range list.Items {
				if slices.Contains(uids(&list.Items[i]), owner.GetUID()) {
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

// isAsNew tells whether the cache of a kind has everything that was written before
// an object. All kinds are in one store, with one count of revisions.
func (c *Controller) isAsNew(kind string, object client.Object) bool {
	cache := c.caches[kind]
	if cache == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(cache.LastStoreSyncResourceVersion(), object.GetResourceVersion())
	return err == nil && order >= 0 // an error is that of a cache that does not know
}
