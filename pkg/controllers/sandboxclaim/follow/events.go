// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// settle is how long a claim that has just been Completed is left alone. Its sandboxes are
// well, or have an event of their own, and the cache of these has caught up by then.
const settle = time.Second

// claimEvents queues claims that are Completed: all that there are at the start, because
// their sandboxes may have changed before, and those that change, because what a client
// has written heals.
func (c *Controller) claimEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue.Interface) {
			claim, ok := e.Object.(*v1alpha1.SandboxClaim)
			switch {
			case !ok || !isFollowed(claim):
			case e.IsInInitialList:
				q.Add(queue.RequestFor(claim))
			default:
				q.AddAfter(queue.RequestFor(claim), settle)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue.Interface) {
			before, okBefore := e.ObjectOld.(*v1alpha1.SandboxClaim)
			after, okAfter := e.ObjectNew.(*v1alpha1.SandboxClaim)
			switch {
			case !okBefore || !okAfter || !isFollowed(after) || before.ResourceVersion == after.ResourceVersion:
			case !isFollowed(before):
				q.AddAfter(queue.RequestFor(after), settle)
			default:
				c.enqueue(queue.RequestFor(after), q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue.Interface) {
			c.pace.forget(queue.RequestFor(e.Object).NamespacedName)
		},
	}
}

// news is what a claim can see of a sandbox.
type news struct {
	claim    types.NamespacedName
	uid      string
	starting bool
	cause    cause
	address  string
	// agent is what else a claim of agent-sandbox says of it.
	agent string
}

func newsOf(sandbox *v1alpha1.Sandbox) news {
	n := news{
		claim:    types.NamespacedName{Namespace: sandbox.Namespace, Name: sandbox.Labels[v1alpha1.LabelClaimName]},
		uid:      sandbox.Annotations[v1alpha1.AnnotationOwner],
		starting: sandbox.Annotations[v1alpha1.AnnotationStarting] != "",
		address:  address(sandbox),
	}
	if n.isBound() {
		n.cause, n.agent = causeOf(sandbox), agentNews(sandbox)
	}
	return n
}

func (n news) isBound() bool { return n.claim.Name != "" && n.uid != "" }

// isExpected reports whether a sandbox is as one that begins to count for its claim, which
// the claim says of itself.
func (n news) isExpected() bool { return n.starting || n.cause.rank == well }

// isNews reports whether a sandbox was made while this program runs. The claims of those
// that were there before are queued themselves.
func isNews(e event.CreateEvent) bool { return !e.IsInInitialList }

// sandboxEvents queues the claims of sandboxes that change in a way that their claims can
// see. A sandbox that is claimed, and is well, is none: so claims cost nothing here.
func (c *Controller) sandboxEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue.Interface) {
			if sandbox, ok := e.Object.(*v1alpha1.Sandbox); ok {
				if is := newsOf(sandbox); is.isBound() && !is.isExpected() {
					c.enqueue(reconcile.Request{NamespacedName: is.claim}, q)
				}
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue.Interface) {
			before, okBefore := e.ObjectOld.(*v1alpha1.Sandbox)
			after, okAfter := e.ObjectNew.(*v1alpha1.Sandbox)
			if okBefore && okAfter {
				c.sandboxChanged(before, after, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue.Interface) {
			if sandbox, ok := e.Object.(*v1alpha1.Sandbox); ok {
				if was := newsOf(sandbox); was.isBound() && !was.starting {
					c.enqueue(reconcile.Request{NamespacedName: was.claim}, q)
				}
			}
		},
	}
}

func (c *Controller) sandboxChanged(before, after *v1alpha1.Sandbox, q queue.Interface) {
	was, is := newsOf(before), newsOf(after)
	if was == is {
		return
	}
	moved := was.uid != is.uid || was.claim != is.claim || before.UID != after.UID
	if moved && was.isBound() {
		c.enqueue(reconcile.Request{NamespacedName: was.claim}, q)
	}
	begins := (moved || was.starting) && is.isExpected()
	if is.isBound() && !is.starting && !begins {
		c.enqueue(reconcile.Request{NamespacedName: is.claim}, q)
	}
}

// enqueue queues a claim for when it may be written. Until then all news are one.
func (c *Controller) enqueue(claim reconcile.Request, q queue.Interface) {
	q.AddAfter(claim, max(gather, c.pace.left(claim.NamespacedName)))
}
