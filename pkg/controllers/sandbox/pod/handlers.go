// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// sandboxEvents queues a sandbox for every change, its own status included: a write that
// was refused because the cache was old is done again when the newer object comes. What
// is remembered is of one sandbox and not of its name, which the next one may have before
// the controller sees that the last one is gone.
func (c *Controller) sandboxEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue.Interface) { q.Add(queue.RequestFor(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue.Interface) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				c.memory.forget(client.ObjectKeyFromObject(e.ObjectNew))
			}
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				c.labeler.noteClaim(e.ObjectOld, e.ObjectNew)
				q.Add(queue.RequestFor(e.ObjectNew))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue.Interface) {
			c.memory.forget(client.ObjectKeyFromObject(e.Object))
			q.Add(queue.RequestFor(e.Object))
		},
	}
}

// podEvents queues the sandbox of a pod: the two have the same name. Whether the sandbox
// owns the pod is decided in the plan, because a pod of another owner is in the way.
func (c *Controller) podEvents() handler.EventHandler {
	seen := func(pod client.Object) reconcile.Request {
		request := queue.RequestFor(pod)
		c.memory.podExpectations.recordSeen(request.NamespacedName, pod.GetUID())
		return request
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue.Interface) { q.Add(seen(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue.Interface) {
			before, okBefore := e.ObjectOld.(*corev1.Pod)
			after, okAfter := e.ObjectNew.(*corev1.Pod)
			if okBefore && okAfter && (differ(before, after) || c.memory.resizes.has(client.ObjectKeyFromObject(after))) {
				q.Add(seen(after))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue.Interface) { q.Add(seen(e.Object)) },
	}
}

// enqueueStarting queues a sandbox that may be waiting for a template or a runtime that
// changed. Those that run keep what they were made with.
func enqueueStarting(user client.Object, q queue.Interface) {
	sandbox, ok := user.(*v1alpha1.Sandbox)
	if !ok {
		return
	}
	switch sandbox.Status.Phase {
	case "", v1alpha1.SandboxPending, v1alpha1.SandboxResuming, v1alpha1.SandboxRecycling:
		q.Add(queue.RequestFor(sandbox))
	}
}
