// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

type requests = workqueue.TypedRateLimitingInterface[request]

// events queues an object when it comes or gets other owners (they may have gone
// before anyone could see that they owned something), and when something happens
// to its owners or to what it owns. An owner and what it owns come from watches of
// their own: whichever of the two is seen last brings both together.
func (c *Controller) events(kind string) handler.TypedEventHandler[client.Object, request] {
	return handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requests) {
			if len(owners(e.Object)) > 0 || isLeaving(e.Object) {
				q.Add(requestFor(kind, e.Object))
			}
			if isLeaving(e.Object) {
				c.addOwned(ctx, kind, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requests) {
			if len(e.ObjectOld.GetOwnerReferences()) > 0 || len(e.ObjectNew.GetOwnerReferences()) > 0 {
				changedOwners(kind, e.ObjectOld, e.ObjectNew, q)
			}
			if !isLeaving(e.ObjectNew) {
				return
			}
			q.Add(requestFor(kind, e.ObjectNew))
			if fateOf(e.ObjectOld) != fateOf(e.ObjectNew) {
				c.addOwned(ctx, kind, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requests) {
			addOwners(e.Object, q, nil)
			c.addOwned(ctx, kind, e.Object, q)
		},
	}
}

// changedOwners queues an object that has got other owners, and those it had.
func changedOwners(kind string, before, after client.Object, q requests) {
	had, has := uids(before), uids(after)
	if slices.ContainsFunc(has, func(uid types.UID) bool { return !slices.Contains(had, uid) }) {
		q.Add(requestFor(kind, after))
	}
	addOwners(before, q, has)
}

func uids(object client.Object) []types.UID {
	var all []types.UID
	for _, owner := range object.GetOwnerReferences() {
		all = append(all, owner.UID)
	}
	return all
}

// addOwners queues the owners of an object but for some: they may have waited for
// it.
func addOwners(object client.Object, q requests, but []types.UID) {
	for _, owner := range owners(object) {
		if !slices.Contains(but, owner.UID) {
			q.Add(requestOf(object.GetNamespace(), &owner))
		}
	}
}

func requestOf(namespace string, owner *metav1.OwnerReference) request {
	return request{kind: owner.Kind, NamespacedName: types.NamespacedName{Namespace: namespace, Name: owner.Name}}
}

// addOwned queues what an object owns.
func (c *Controller) addOwned(ctx context.Context, kind string, owner client.Object, q requests) {
	if err := c.ownedBy(ctx, kind, owner, func(r request) { q.Add(r) }); err != nil {
		log.FromContext(ctx).Error(err, "Finding what an object owns that is deleted")
	}
}
