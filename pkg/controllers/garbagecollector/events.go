// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"slices"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

type requests = workqueue.TypedRateLimitingInterface[request]

// events queues an object when it is created or gets other owners (they may be gone before
// the cache shows their dependents), and when something happens to its owners or to its
// dependents. An owner and its dependents come from different watches: the one that is
// seen last brings both together.
func (c *Controller) events(kind string) handler.TypedEventHandler[client.Object, request] {
	return handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requests) {
			if len(owners(e.Object)) > 0 || waitsForDependents(e.Object) {
				q.Add(requestFor(kind, e.Object))
			}
			if waitsForDependents(e.Object) {
				c.enqueueDependents(ctx, kind, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requests) {
			if len(e.ObjectOld.GetOwnerReferences()) > 0 || len(e.ObjectNew.GetOwnerReferences()) > 0 {
				enqueueChangedOwners(kind, e.ObjectOld, e.ObjectNew, q)
			}
			if !waitsForDependents(e.ObjectNew) {
				return
			}
			q.Add(requestFor(kind, e.ObjectNew))
			if stateOf(e.ObjectOld) != stateOf(e.ObjectNew) {
				c.enqueueDependents(ctx, kind, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requests) {
			enqueueOwners(e.Object, q, nil)
			c.enqueueDependents(ctx, kind, e.Object, q)
		},
	}
}

// changedOwners queues an object that has got other owners, and those it had.
func enqueueChangedOwners(kind string, before, after client.Object, q requests) {
	had, has := uids(before), uids(after)
	if slices.ContainsFunc(has, func(uid string) bool { return !slices.Contains(had, uid) }) {
		q.Add(requestFor(kind, after))
	}
	enqueueOwners(before, q, has)
}

// addOwners queues the owners of an object but for some: they may have waited for
// it.
func enqueueOwners(object client.Object, q requests, except []string) {
	for _, owner := range owners(object) {
		if !slices.Contains(except, string(owner.UID)) {
			q.Add(requestForOwner(object.GetNamespace(), &owner))
		}
	}
}

// enqueueDependents queues the dependents of an object.
func (c *Controller) enqueueDependents(ctx context.Context, kind string, owner client.Object, q requests) {
	if err := c.eachDependent(ctx, kind, owner, func(r request) { q.Add(r) }); err != nil {
		log.FromContext(ctx).Error(err, "Failed to look up the dependents of a deleted object", "kind", kind, "object", client.ObjectKeyFromObject(owner))
	}
}
