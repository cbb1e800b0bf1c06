// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reconciler has the one reconciler of claims: the queue of claims that are due, its workers,
// which namespaces share, and the rule that says which server works on a claim. What is done for a
// claim is in the subreconcilers, which are the allocator's.
package reconciler

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

// Reconciler works on claims outside of their create calls. It has one queue of the claims that are
// due, one set of workers that namespaces share, and the subreconcilers, which do the work.
type Reconciler struct {
	// Queue has the UIDs of the claims that are due.
	Queue workqueue.TypedRateLimitingInterface[types.UID]
	// Subreconcilers are called in this order for each claim that is due. They are set before Run.
	Subreconcilers []Subreconciler

	// share keeps workers free of the claims of one namespace.
	share *fairness.WorkShare
	clock clock.WithTicker
	// prefers says which claims are this server's; nil, or a nil function, is all.
	prefers atomic.Pointer[func(namespace, name string) bool]
	// retryAfter returns after what time an error allows a retry; 0 if it does not say.
	retryAfter func(error) time.Duration

	mu sync.Mutex
	// ctx is that of Run; nil before and after.
	ctx     context.Context
	running sync.WaitGroup
}

// A Subreconciler does one kind of work on claims. It is level-triggered: it looks at what is known
// of a claim, writes what can be written, and says when to look again. Events only make a claim due.
type Subreconciler interface {
	// NamespaceOf returns the namespace of a claim that the subreconciler has work on; empty if it
	// has none.
	NamespaceOf(uid types.UID) string
	// Reconcile does the next step for a claim, and returns after what time to do another; 0 means
	// when there is an event. It is called for all claims that are due, also if it has no work on them.
	Reconcile(ctx context.Context, uid types.UID) (again time.Duration, err error)
}

// limited is a subreconciler that works on a limited number of claims at the same time, so that
// the other workers do other work.
type limited struct {
	Subreconciler
	share *fairness.WorkShare
}

// NewLimited returns a Subreconciler that works on no more claims at the same time than share lets it.
func NewLimited(sub Subreconciler, share *fairness.WorkShare) Subreconciler {
	return limited{sub, share}
}

// Reconcile implements Subreconciler.
func (l limited) Reconcile(ctx context.Context, uid types.UID) (again time.Duration, err error) {
	namespace := l.NamespaceOf(uid)
	switch {
	case namespace == "": // there is no more work on it, and another claim can have its place
		l.share.Wake()
		return 0, nil
	case !l.share.Begin(namespace, uid):
		return 0, nil
	}
	defer l.share.End(namespace)
	return l.Subreconciler.Reconcile(ctx, uid)
}

// Soon is the time after which a claim is due again that has more to do now.
const Soon = time.Nanosecond

// ErrRequeue is an error of a subreconciler after which the claim is due again as after any other
// error, and which is not logged, because it is expected.
var ErrRequeue = errors.New("requeue")

// New returns a reconciler without subreconcilers. After errors a claim is due again at
// growing intervals, or when retryAfter says for the error.
func New(c clock.WithTicker, retryAfter func(error) time.Duration) *Reconciler {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](20*time.Millisecond, 5*time.Second),
		workqueue.TypedRateLimitingQueueConfig[types.UID]{Clock: c, Name: "sandboxclaims"})
	return &Reconciler{Queue: queue, clock: c, retryAfter: retryAfter, share: fairness.NewWorkShare(workers, queue.Add)}
}

// Run works until ctx is done, and returns when everything it started has stopped. It calls tick
// every second.
func (r *Reconciler) Run(ctx context.Context, tick func(now time.Time)) {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	for range workers {
		r.running.Go(func() {
			for r.Next(ctx) {
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
	r.Queue.ShutDown()
	r.mu.Lock()
	r.ctx = nil
	r.mu.Unlock()
	r.running.Wait()
}

// IsRunning reports whether this server does background work.
func (r *Reconciler) IsRunning() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ctx != nil
}

// Background runs f, which ends with its context, or returns false if this server does
// no background work.
func (r *Reconciler) Background(f func(context.Context)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx := r.ctx
	if ctx == nil {
		return false
	}
	r.running.Go(func() { f(ctx) })
	return true
}

// SetPreference sets which claims are this server's; nil is all.
func (r *Reconciler) SetPreference(prefers func(namespace, name string) bool) {
	r.prefers.Store(&prefers)
}

// preference returns prefers; nil is all.
func (r *Reconciler) preference() func(namespace, name string) bool {
	if prefers := r.prefers.Load(); prefers != nil {
		return *prefers
	}
	return nil
}

// IsAlone reports whether this server knows of no other.
func (r *Reconciler) IsAlone() bool { return r.preference() == nil }

// IsMine reports whether a claim is this server's by the rule that all servers follow.
func (r *Reconciler) IsMine(uid types.UID) bool {
	prefers := r.preference()
	return prefers == nil || prefers("", string(uid))
}

// Next reconciles the next claim that is due. It returns false when there are no more.
func (r *Reconciler) Next(ctx context.Context) bool {
	uid, shutdown := r.Queue.Get()
	if shutdown {
		return false
	}
	defer r.Queue.Done(uid)
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
func (r *Reconciler) reconcile(ctx context.Context, namespace string, uid types.UID) {
	var dueAfter []time.Duration
	failed := false
	for _, sub := range r.Subreconcilers {
		again, err := sub.Reconcile(ctx, uid)
		switch {
		case ctx.Err() != nil: // the work continues after a restart, or on another server
			return
		case r.retryAfter(err) > 0:
			again = r.retryAfter(err)
		case err != nil:
			if !errors.Is(err, ErrRequeue) {
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
		r.Queue.AddRateLimited(uid)
	case len(dueAfter) == 0:
		r.Queue.Forget(uid)
	case slices.Contains(dueAfter, Soon):
		r.Queue.Add(uid)
	default:
		r.Queue.Forget(uid)
		r.Queue.AddAfter(uid, slices.Min(dueAfter))
	}
}

// namespaceOf returns the namespace of a claim that there is work on; empty if there is none.
func (r *Reconciler) namespaceOf(uid types.UID) string {
	for _, sub := range r.Subreconcilers {
		if namespace := sub.NamespaceOf(uid); namespace != "" {
			return namespace
		}
	}
	return ""
}
