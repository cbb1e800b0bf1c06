// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimepolicy

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/ownedobject"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// grace is for how long a policy stays after the last sandbox or pod that it is for: a pool
// that is replaced has others soon.
const grace = time.Minute

// sandboxEvents keeps the sandboxes, and queues their namespace when it gains or loses a
// source of agent-runtimes. Most sandboxes change neither.
func (c *Controller) sandboxEvents() handler.EventHandler {
	put := func(object client.Object, q queue.Interface) {
		sandbox, ok := object.(*v1alpha1.Sandbox)
		if !ok {
			return
		}
		gained, lost := c.sandboxes.put(sandbox)
		if gained {
			q.Add(requestFor(sandbox.Namespace))
		}
		if lost {
			q.AddAfter(requestFor(sandbox.Namespace), grace)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue.Interface) { put(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue.Interface) {
			if ownedobject.Changed(e) {
				put(e.ObjectNew, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue.Interface) {
			if c.sandboxes.remove(client.ObjectKeyFromObject(e.Object)) {
				q.AddAfter(requestFor(e.Object.GetNamespace()), grace)
			}
		},
	}
}

func hasRuntime(pod client.Object) bool {
	return pod.GetLabels()[v1alpha1.LabelAgentRuntime] == v1alpha1.AgentRuntimeTrue
}

// podEvents queues the namespace of a pod that gets the label or goes. That is after its
// sandbox, unless the template that this refers to was changed meanwhile. Nothing else that
// happens to a pod matters.
func podEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue.Interface) {
			if hasRuntime(e.Object) {
				q.Add(requestFor(e.Object.GetNamespace()))
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue.Interface) {
			if hasRuntime(e.ObjectNew) && !hasRuntime(e.ObjectOld) {
				q.Add(requestFor(e.ObjectNew.GetNamespace()))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue.Interface) {
			if hasRuntime(e.Object) {
				q.AddAfter(requestFor(e.Object.GetNamespace()), grace)
			}
		},
	}
}

// namespaceOfPolicy returns the namespace of a policy that has the name of ours.
func namespaceOfPolicy(_ context.Context, policy client.Object) []reconcile.Request {
	if policy.GetName() != v1alpha1.AgentRuntimesPolicy {
		return nil
	}
	return []reconcile.Request{requestFor(policy.GetNamespace())}
}
