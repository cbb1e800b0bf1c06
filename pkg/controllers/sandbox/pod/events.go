// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podresize"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// sandboxEvents queues a sandbox for every change, its own status included: a
// write that met an old cache is made good when the newer object comes. What is
// remembered is of one sandbox and not of a name, which the next one may have
// before it is noticed that the last one went.
func (c *Controller) sandboxEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { q.Add(requestFor(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				c.forget(client.ObjectKeyFromObject(e.ObjectNew))
			}
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				c.noteClaim(e.ObjectOld, e.ObjectNew)
				q.Add(requestFor(e.ObjectNew))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			c.forget(client.ObjectKeyFromObject(e.Object))
			q.Add(requestFor(e.Object))
		},
	}
}

// podEvents queues the sandbox of a pod: the two have the same name. That the
// sandbox owns the pod is for the plan to see, because one that does not is in
// the way of one that would.
func (c *Controller) podEvents() handler.EventHandler {
	seen := func(pod client.Object) reconcile.Request {
		request := requestFor(pod)
		c.expectations.seen(request.NamespacedName, pod.GetUID())
		return request
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { q.Add(seen(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, okBefore := e.ObjectOld.(*corev1.Pod)
			after, okAfter := e.ObjectNew.(*corev1.Pod)
			if okBefore && okAfter && (differ(before, after) || c.resizes.has(client.ObjectKeyFromObject(after))) {
				q.Add(seen(after))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { q.Add(seen(e.Object)) },
	}
}

// report records the event that goes with a change of the phase. Reasons and
// messages are OpenKruise's. That a sandbox of a pool starts is told by the set's
// events: two more for each would double what a fill writes to the cluster's etcd.
func (c *Controller) report(before, after *v1alpha1.Sandbox) {
	if before.Status.Phase == after.Status.Phase && before.Status.ObservedGeneration != 0 {
		return
	}
	kind := corev1.EventTypeNormal
	var message string
	switch after.Status.Phase {
	case v1alpha1.SandboxPending:
		message = "Start sandbox"
	case v1alpha1.SandboxRunning:
		message = "Sandbox started"
		if before.Status.Phase == v1alpha1.SandboxResuming {
			message = "Sandbox resumed"
		}
	case v1alpha1.SandboxPaused:
		message = "Pause sandbox"
	case v1alpha1.SandboxResuming:
		message = "Resume sandbox"
	case v1alpha1.SandboxSucceeded:
		message = "Sandbox succeeded"
	case v1alpha1.SandboxFailed:
		kind, message = corev1.EventTypeWarning, "Sandbox failed"
	default:
		return
	}
	if kind == corev1.EventTypeNormal && v1alpha1.IsInPool(after) {
		return
	}
	c.event(after, kind, "Sandbox"+string(after.Status.Phase), message)
}

// warn records the events of a sandbox that cannot get its pod, once for each
// state of that.
func (c *Controller) warn(before, after *v1alpha1.Sandbox, mismatch bool) {
	const kind = v1alpha1.SandboxConditionReady
	ready := meta.FindStatusCondition(after.Status.Conditions, kind)
	if ready == nil || ready.Reason != v1alpha1.ReasonPodCreateFailed && !isRuntimeReason(ready.Reason) {
		return
	}
	if old := meta.FindStatusCondition(before.Status.Conditions, kind); old != nil && old.Reason == ready.Reason && old.Message == ready.Message {
		return
	}
	reason := ready.Reason
	if mismatch {
		reason = reasonPodOwnerMismatch
	}
	c.event(after, corev1.EventTypeWarning, reason, ready.Message)
}

// warnResize records the event of a resize that failed.
func (c *Controller) warnResize(before, after *v1alpha1.Sandbox) {
	const kind = v1alpha1.SandboxConditionInplaceUpdate
	now := meta.FindStatusCondition(after.Status.Conditions, kind)
	if now == nil || now.Reason != v1alpha1.ReasonFailed || hasReason(before.Status.Conditions, kind, now.Reason) {
		return
	}
	reason := reasonInplaceUpdateFailed
	if podresize.IsForbidden(now.Message) {
		reason = reasonInplaceUpdateForbidden
	}
	c.event(after, corev1.EventTypeWarning, reason, now.Message)
}

// Reasons of events.
const (
	// reasonInplaceUpdateFailed: the pod does not get the resources that the claim
	// asks for.
	reasonInplaceUpdateFailed = "InplaceUpdateFailed"
	// reasonInplaceUpdateForbidden: the pod cannot get them, because of its QoS class.
	reasonInplaceUpdateForbidden = "InplaceUpdateForbidden"
	// reasonPodOwnerMismatch: a pod of somebody else has the name of the sandbox's own.
	reasonPodOwnerMismatch = "PodOwnerMismatch"
	// reasonPodUpdateFailed: the pod must not have the metadata that the sandbox wants.
	reasonPodUpdateFailed = "PodUpdateFailed"
	// reasonPodDeleteFailed: the pod must not be deleted, and the sandbox not paused.
	reasonPodDeleteFailed = "PodDeleteFailed"
)

// event records an event, if events are on. The sandbox is named without its
// resourceVersion, which changes with each of its statuses: then what happens
// again and again is one event that is counted up.
func (c *Controller) event(sandbox *v1alpha1.Sandbox, kind, reason, message string) {
	if c.recorder == nil {
		return
	}
	c.recorder.Eventf(&corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(),
		Kind:       "Sandbox",
		Namespace:  sandbox.Namespace,
		Name:       sandbox.Name,
		UID:        sandbox.UID,
	}, nil, kind, reason, "Reconcile", "%s", truncated(message))
}

func requestFor(object client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}
}
