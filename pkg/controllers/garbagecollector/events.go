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
// seen last brings both together. After a watch that was broken, the update of an object may
// be its deletion and the creation of another of its name: those are two events.
func (c *Controller) events(kind string) handler.TypedEventHandler[client.Object, request] {
	created := func(ctx context.Context, object client.Object, q requests) {
		if len(owners(object)) > 0 || waitsForDependents(object) {
			q.Add(requestFor(kind, object))
		}
		if waitsForDependents(object) {
			c.enqueueDependents(ctx, kind, object, q)
		}
	}
	deleted := func(ctx context.Context, object client.Object, q requests) {
		enqueueOwners(object, q, nil)
		c.enqueueDependents(ctx, kind, object, q)
	}
	updated := func(ctx context.Context, before, after client.Object, q requests) {
		if len(before.GetOwnerReferences()) > 0 || len(after.GetOwnerReferences()) > 0 {
			enqueueChangedOwners(kind, before, after, q)
		}
		if !waitsForDependents(after) {
			return
		}
		q.Add(requestFor(kind, after))
		if stateOf(before) != stateOf(after) {
			c.enqueueDependents(ctx, kind, after, q)
		}
	}
	return handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requests) { created(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requests) {
			if e.ObjectOld.GetUID() == e.ObjectNew.GetUID() {
				updated(ctx, e.ObjectOld, e.ObjectNew, q)
				return
			}
			deleted(ctx, e.ObjectOld, q)
			created(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requests) { deleted(ctx, e.Object, q) },
	}
}

// enqueueChangedOwners queues an object that has got other owners, and those it had.
func enqueueChangedOwners(kind string, before, after client.Object, q requests) {
	had, has := uids(before), uids(after)
	if slices.ContainsFunc(has, func(uid string) bool { return !slices.Contains(had, uid) }) {
		q.Add(requestFor(kind, after))
	}
	enqueueOwners(before, q, has)
}

// enqueueOwners queues the owners of an object except for some: they may have waited for it.
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
