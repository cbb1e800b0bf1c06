// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimepolicy

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

func hasRuntime(pod client.Object) bool {
	return pod.GetLabels()[v1alpha1.LabelAgentRuntime] == v1alpha1.AgentRuntimeTrue
}

// podEvents queues the namespace of a pod that gets the label or goes. Nothing else that
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
				q.AddAfter(requestFor(e.Object.GetNamespace()), recheck)
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
