// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// setEvents wakes a set when it changes: at once when a user changed it, gathered
// when only its status did. The latter is mostly the controller's own write, and
// needed all the same: a status that was made from an old cache is mended then.
func (c *Controller) setEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			q.Add(requestFor(client.ObjectKeyFromObject(e.Object)))
			c.wakeGrowing(ctx, e.Object.GetNamespace(), q, e.Object.GetName())
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			request := requestFor(client.ObjectKeyFromObject(e.ObjectNew))
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
				e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				q.Add(request)
				return
			}
			q.AddAfter(request, c.bursts.gather(request.NamespacedName))
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			q.Add(requestFor(client.ObjectKeyFromObject(e.Object)))
			c.wakeGrowing(ctx, e.Object.GetNamespace(), q, e.Object.GetName())
		},
	}
}

// sandboxEvents tells expectations and bursts what the cache shows, and wakes the
// set of a changed sandbox. Changes are gathered: the queue keeps the earliest
// time for a set, so a set is counted once in that time, however many of its
// sandboxes change in it.
func (c *Controller) sandboxEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if sandbox, ok := e.Object.(*v1alpha1.Sandbox); ok {
				c.sandboxCreated(sandbox, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, okBefore := e.ObjectOld.(*v1alpha1.Sandbox)
			after, okAfter := e.ObjectNew.(*v1alpha1.Sandbox)
			if okBefore && okAfter {
				c.sandboxUpdated(before, after, q)
				c.wakeWaiting(ctx, q, before, after)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if sandbox, ok := e.Object.(*v1alpha1.Sandbox); ok {
				c.expectations.gone(sandbox.UID)
				c.starts.saw(sandbox.UID, useNone, c.clock.Now())
				c.wake(sandbox, q)
				c.wakeWaiting(ctx, q, sandbox)
			}
		},
	}
}

func (c *Controller) sandboxCreated(sandbox *v1alpha1.Sandbox, q queue) {
	// By label: when a claim was fast, the owner is gone at first sight.
	if set := sandbox.Labels[v1alpha1.LabelSandboxPool]; set != "" {
		c.expectations.seen(types.NamespacedName{Namespace: sandbox.Namespace, Name: set}, sandbox.UID)
	}
	now := c.clock.Now()
	c.starts.saw(sandbox.UID, useOf(sandbox, now), now)
	c.wake(sandbox, q)
}

func (c *Controller) sandboxUpdated(before, after *v1alpha1.Sandbox, q queue) {
	if before.UID != after.UID {
		// Deleted and made again between two looks of the cache.
		c.expectations.gone(before.UID)
		c.starts.saw(before.UID, useNone, c.clock.Now())
		c.wake(before, q)
		c.sandboxCreated(after, q)
		return
	}
	if after.DeletionTimestamp != nil {
		c.expectations.gone(after.UID)
	}
	owner := v1alpha1.PoolOf(before)
	now := c.clock.Now()
	c.starts.saw(after.UID, useOf(after, now), now)
	if owner != nil && useOf(before, now) == useCreating && works(after) {
		c.failures.succeeded(
			types.NamespacedName{Namespace: before.Namespace, Name: owner.Name}, before.Labels[v1alpha1.LabelTemplateHash])
	}
	if owner != nil && v1alpha1.PoolOf(after) == nil {
		set := types.NamespacedName{Namespace: before.Namespace, Name: owner.Name}
		c.bursts.took(set, now)
		c.aheads.took(set, now)
		c.waiting.took(types.UID(after.Annotations[v1alpha1.AnnotationOwner]), after.ResourceVersion, now)
		c.shortages.took(set, now)
		c.wake(before, q)
	}
	c.wake(after, q)
}

// works says that a sandbox has come to be available, even if a claim that waited
// for it has taken it out of its pool at once. To run is not enough: a process
// that ends soon runs for a moment, too.
func works(sandbox *v1alpha1.Sandbox) bool {
	return sandbox.Status.Phase == v1alpha1.SandboxRunning &&
		meta.IsStatusConditionTrue(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
}

// wake queues the set that owns a sandbox, if any.
func (c *Controller) wake(sandbox *v1alpha1.Sandbox, q queue) {
	if owner := v1alpha1.PoolOf(sandbox); owner != nil {
		key := types.NamespacedName{Namespace: sandbox.Namespace, Name: owner.Name}
		q.AddAfter(requestFor(key), c.bursts.gather(key))
	}
}

// wakeUser queues a set when a template that it refers to changes.
func wakeUser(set client.Object, q queue) { q.Add(requestFor(client.ObjectKeyFromObject(set))) }

// revisionEvents wakes a set when a template that holds a revision of it is gone,
// for it may be needed, and when one that had the name of such a template is gone
// or has lost its owner: the name is free.
func (c *Controller) revisionEvents() handler.EventHandler {
	wake := func(template client.Object, q queue) {
		for _, set := range setsOf(template) {
			c.unheld.forget(set)
			q.AddAfter(requestFor(set), c.bursts.gather(set))
		}
	}
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := metav1.GetControllerOfNoCopy(e.ObjectOld), metav1.GetControllerOfNoCopy(e.ObjectNew)
			if before != nil && (after == nil || after.UID != before.UID) {
				wake(e.ObjectOld, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { wake(e.Object, q) },
	}
}

// setsOf are the sets that a template holds a revision of, or may keep from holding
// one: by owner, by label, and by name for those that never were a set's.
func setsOf(template client.Object) []types.NamespacedName {
	names := sets.New[string]()
	if owner := metav1.GetControllerOfNoCopy(template); owner != nil && owner.Kind == "SandboxSet" {
		names.Insert(owner.Name)
	}
	if set := template.GetLabels()[v1alpha1.LabelSandboxPool]; set != "" {
		names.Insert(set)
	}
	if dash := strings.LastIndexByte(template.GetName(), '-'); dash > 0 {
		names.Insert(template.GetName()[:dash])
	}
	keys := make([]types.NamespacedName, 0, names.Len())
	for name := range names {
		keys = append(keys, types.NamespacedName{Namespace: template.GetNamespace(), Name: name})
	}
	return keys
}

func requestFor(key types.NamespacedName) reconcile.Request {
	return reconcile.Request{NamespacedName: key}
}
