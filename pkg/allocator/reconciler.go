// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// workers is how many claims a server reconciles at the same time. Most of them wait, for etcd or
// for admission, and must not keep others from being reconciled.
const workers = 512

// reconciler works on claims outside of their create calls. It has one queue of the claims that are
// due, one set of workers that namespaces share, and the subreconcilers, which do the work.
type reconciler struct {
	// queue has the UIDs of the claims that are due.
	queue workqueue.TypedRateLimitingInterface[types.UID]
	// share keeps workers free of the claims of one namespace.
	share *fairness.WorkShare
	clock clock.WithTicker
	// prefers says which claims are this server's; nil, or a nil function, is all.
	prefers atomic.Pointer[func(namespace, name string) bool]
	// subreconcilers are called in this order for each claim that is due.
	subreconcilers []subreconciler

	mu sync.Mutex
	// ctx is that of run; nil before and after.
	ctx     context.Context
	running sync.WaitGroup
}

// A subreconciler does one kind of work on claims. It is level-triggered: it looks at what is known
// of a claim, writes what can be written, and says when to look again. News only make a claim due.
type subreconciler interface {
	// namespaceOf returns the namespace of a claim that the subreconciler has work on; empty if it
	// has none.
	namespaceOf(uid types.UID) string
	// reconcile does the next step for a claim, and returns after what time to do another; 0 means
	// when there is news. It is called for all claims that are due, also if it has no work on them.
	reconcile(ctx context.Context, uid types.UID) (again time.Duration, err error)
}

// limited is a subreconciler that works on a limited number of claims at the same time, so that the
// others of the workers go on with other work.
type limited struct {
	subreconciler
	share *fairness.WorkShare
}

func newLimited(sub subreconciler, claims int, r *reconciler) limited {
	return limited{sub, fairness.NewWorkLimit(claims, r.queue.Add)}
}

func (l limited) reconcile(ctx context.Context, uid types.UID) (again time.Duration, err error) {
	namespace := l.namespaceOf(uid)
	switch {
	case namespace == "": // there is no more work on it, and another claim can have its place
		l.share.Wake()
		return 0, nil
	case !l.share.Begin(namespace, uid):
		return 0, nil
	}
	defer l.share.End(namespace)
	return l.subreconciler.reconcile(ctx, uid)
}

// soon is the time after which a claim is due again that has more to do now.
const soon = time.Nanosecond

// newReconciler returns a reconciler without subreconcilers. After errors a claim is due again at
// growing intervals.
func newReconciler(c clock.WithTicker) *reconciler {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](20*time.Millisecond, 5*time.Second),
		workqueue.TypedRateLimitingQueueConfig[types.UID]{Clock: c, Name: "sandboxclaims"})
	return &reconciler{queue: queue, clock: c, share: fairness.NewWorkShare(workers, queue.Add)}
}

// run works until ctx is done, and returns when everything it started has stopped. It calls tick
// every second.
func (r *reconciler) run(ctx context.Context, tick func(now time.Time)) {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	for range workers {
		r.running.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	ticker := r.clock.NewTicker(time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case now := <-ticker.C():
			tick(now)
		}
	}
	r.queue.ShutDown()
	r.mu.Lock()
	r.ctx = nil
	r.mu.Unlock()
	r.running.Wait()
}

// isRunning reports whether this server does background work.
func (r *reconciler) isRunning() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ctx != nil
}

// background runs f, which ends with its context, or returns false if this server does
// no background work.
func (r *reconciler) background(f func(context.Context)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx := r.ctx
	if ctx == nil {
		return false
	}
	r.running.Go(func() { f(ctx) })
	return true
}

// preference returns prefers; nil is all.
func (r *reconciler) preference() func(namespace, name string) bool {
	if prefers := r.prefers.Load(); prefers != nil {
		return *prefers
	}
	return nil
}

// isAlone reports whether this server knows of no other.
func (r *reconciler) isAlone() bool { return r.preference() == nil }

// isMine reports whether a claim is this server's by the rule that all servers follow.
func (r *reconciler) isMine(uid types.UID) bool {
	prefers := r.preference()
	return prefers == nil || prefers("", string(uid))
}

// next reconciles the next claim that is due. It returns false when there are no more.
func (r *reconciler) next(ctx context.Context) bool {
	uid, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(uid)
	namespace := r.namespaceOf(uid)
	switch {
	case ctx.Err() != nil:
		return true
	case namespace == "": // there is no more work on it, and another claim can have its worker
		r.share.Wake()
	case !r.share.Begin(namespace, uid):
		return true
	default:
		defer r.share.End(namespace)
	}
	r.reconcile(ctx, namespace, uid)
	return true
}

// reconcile calls the subreconcilers for a claim, and makes it due again where they say so.
func (r *reconciler) reconcile(ctx context.Context, namespace string, uid types.UID) {
	var dueAfter []time.Duration
	failed := false
	for _, sub := range r.subreconcilers {
		again, err := sub.reconcile(ctx, uid)
		switch {
		case ctx.Err() != nil: // it goes on after a restart, or on another server
			return
		case throttledFor(err) > 0:
			again = throttledFor(err)
		case err != nil:
			if !errors.Is(err, errConflict) && !errors.Is(err, errReplan) {
				klog.FromContext(ctx).Error(err, "Failed to reconcile claim, retrying", "namespace", namespace, "uid", uid)
			}
			failed = true
		}
		if again > 0 {
			dueAfter = append(dueAfter, again)
		}
	}
	switch {
	case failed:
		r.queue.AddRateLimited(uid)
	case len(dueAfter) == 0:
		r.queue.Forget(uid)
	case slices.Contains(dueAfter, soon):
		r.queue.Add(uid)
	default:
		r.queue.Forget(uid)
		r.queue.AddAfter(uid, slices.Min(dueAfter))
	}
}

// namespaceOf returns the namespace of a claim that there is work on; empty if there is none.
func (r *reconciler) namespaceOf(uid types.UID) string {
	for _, sub := range r.subreconcilers {
		if namespace := sub.namespaceOf(uid); namespace != "" {
			return namespace
		}
	}
	return ""
}
