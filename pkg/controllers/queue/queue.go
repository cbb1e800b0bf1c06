// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue has what the work queues of all controllers have in common.
package queue

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// MaxBackoff is the longest time between two tries of a reconcile that fails.
	MaxBackoff = time.Minute

	baseBackoff = 5 * time.Millisecond
)

// Interface is the work queue that event handlers add requests to.
type Interface = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Options returns the options of a controller that works on so many objects at the same
// time. Namespaces take turns. Each failing object is tried again after ever longer pauses.
func Options(workers int) controller.Options {
	return OptionsFor(workers, func(r reconcile.Request) string { return r.Namespace })
}

// OptionsFor is Options for a controller with requests of its own. namespaceOf returns the
// namespace of a request.
func OptionsFor[R comparable](workers int, namespaceOf func(R) string) controller.TypedOptions[R] {
	return controller.TypedOptions[R]{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[R](baseBackoff, MaxBackoff),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[R]) workqueue.TypedRateLimitingInterface[R] {
			return newFairQueue(name, limiter, namespaceOf)
		},
	}
}

// RequestFor returns the request to reconcile an object.
func RequestFor(object client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}
}

// MinRequeue returns the shortest of these times after which to reconcile again. 0 or less is
// never.
func MinRequeue(times ...time.Duration) time.Duration {
	var shortest time.Duration
	for _, after := range times {
		if after > 0 && (shortest == 0 || after < shortest) {
			shortest = after
		}
	}
	return shortest
}

// Source returns a source of no events. It gives take the queue of its controller when that starts, so that what is
// found out elsewhere can be queued.
func Source(take func(Interface)) source.Source {
	return source.Func(func(_ context.Context, q Interface) error {
		take(q)
		return nil
	})
}
