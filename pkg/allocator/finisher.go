// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// adoptAfter is how much longer than the sync window a claim may go on before
// a server that did not create it takes it on as well. The server that created
// it is nearly always done, or at it; if both are at it, the transaction lets
// one of them win.
const adoptAfter = 5 * time.Second

// jobs are the claims that this server works on in the background.
type jobs struct {
	mu      sync.Mutex
	ctx     context.Context // of Run; nil before and after
	running sync.WaitGroup
	byUID   map[types.UID]*job

	// orphans are claims to look at later: should they still be unfinished and
	// nobody's here, they are adopted.
	orphans workqueue.TypedDelayingInterface[types.NamespacedName]
}

func (js *jobs) init(c clock.WithTicker) {
	js.byUID = map[types.UID]*job{}
	js.orphans = workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[types.NamespacedName]{Clock: c, Name: "orphaned_claims"})
}

// Run finishes claims in the background until ctx is done, and returns when
// everything it started has stopped. Claims that are unfinished then are taken
// up by the next server that runs.
func (a *Allocator) Run(ctx context.Context) {
	a.jobs.mu.Lock()
	a.jobs.ctx = ctx
	a.jobs.mu.Unlock()
	defer live.add(a)()
	a.jobs.running.Go(func() { a.adoptOrphans(ctx) })
	<-ctx.Done()
	a.jobs.orphans.ShutDown()
	a.jobs.mu.Lock()
	a.jobs.ctx = nil
	a.jobs.mu.Unlock()
	a.jobs.running.Wait()
}

// background runs f, which ends with its context, or returns false if this server does
// no background work.
func (js *jobs) background(f func(context.Context)) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	ctx := js.ctx
	if ctx == nil {
		return false
	}
	js.running.Go(func() { f(ctx) })
	return true
}

// start lets a job run in the background, as a part of the trace of from. It
// returns false if this server does no background work, or has the claim in hand
// already.
func (a *Allocator) start(from context.Context, j *job) bool {
	a.jobs.mu.Lock()
	defer a.jobs.mu.Unlock()
	uid := j.claim.UID
	if a.jobs.ctx == nil || a.jobs.byUID[uid] != nil {
		return false
	}
	ctx := trace.ContextWithSpan(a.jobs.ctx, trace.SpanFromContext(from))
	a.jobs.byUID[uid] = j
	a.jobs.running.Go(func() {
		defer a.jobs.remove(uid)
		j.run(ctx)
	})
	return true
}

func (js *jobs) remove(uid types.UID) {
	js.mu.Lock()
	defer js.mu.Unlock()
	delete(js.byUID, uid)
}

// each calls f for every job.
func (js *jobs) each(f func(*job)) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.byUID {
		f(j)
	}
}

func (js *jobs) of(uid types.UID) *job {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.byUID[uid]
}

// adoptOrphans takes on the claims whose time to be looked at has come.
func (a *Allocator) adoptOrphans(ctx context.Context) {
	for {
		key, shutdown := a.jobs.orphans.Get()
		if shutdown {
			return
		}
		if err := a.adopt(ctx, key); err != nil && !errors.Is(err, context.Canceled) {
			klog.FromContext(ctx).Error(err, "Looking at an unfinished claim", "claim", key)
			a.jobs.orphans.AddAfter(key, time.Second)
		}
		a.jobs.orphans.Done(key)
	}
}

func (a *Allocator) adopt(ctx context.Context, key types.NamespacedName) error {
	claim, err := a.store.Claim(ctx, key.Namespace, key.Name)
	if err != nil || claim == nil || !unfinished(claim) || a.jobs.of(claim.UID) != nil {
		return err
	}
	j, err := a.newJob(claim, claim.CreationTimestamp.Time)
	if err != nil {
		return err
	}
	j.at, j.stale = version(claim), true // read its sandboxes first
	a.start(ctx, j)
	return nil
}

func unfinished(claim *v1alpha1.SandboxClaim) bool {
	return claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted && claim.DeletionTimestamp == nil
}

// ClaimsListed takes in the claims there are when the server starts, or when its
// watch broke: whoever worked on the unfinished ones may be gone.
func (a *Allocator) ClaimsListed(all []*v1alpha1.SandboxClaim, _ uint64) {
	for _, claim := range all {
		if unfinished(claim) && a.jobs.of(claim.UID) == nil {
			a.jobs.orphans.Add(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
		}
	}
	a.jobs.each(reread) // theirs may be gone
}

// reread lets a job read its claim and its sandboxes again.
func reread(j *job) { j.claimMoved(math.MaxInt64) }

// ClaimChanged takes in the current state of a claim.
func (a *Allocator) ClaimChanged(claim *v1alpha1.SandboxClaim) {
	if j := a.jobs.of(claim.UID); j != nil && j.claimMoved(version(claim)) {
		return
	}
	if !unfinished(claim) {
		return
	}
	age := a.options.Clock.Since(claimStart(claim, claim.CreationTimestamp.Time))
	a.jobs.orphans.AddAfter(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name},
		a.options.SyncWindow+adoptAfter-age)
}

// ClaimDeleted takes in that a claim is gone.
func (a *Allocator) ClaimDeleted(claim *v1alpha1.SandboxClaim) {
	if j := a.jobs.of(claim.UID); j != nil {
		j.claimMoved(version(claim))
	}
}

// SandboxListed begins a new picture of all sandboxes, as of resourceVersion.
func (a *Allocator) SandboxListed(all []*v1alpha1.Sandbox, resourceVersion uint64) {
	a.feed.SandboxListed(all, resourceVersion)
	a.lag.hears(int64(resourceVersion))
	a.jobs.each(reread)
}

// SandboxChanged takes in the current state of a sandbox.
func (a *Allocator) SandboxChanged(sb *v1alpha1.Sandbox) {
	a.feed.SandboxChanged(sb)
	a.lag.hears(version(sb))
	if j := a.ownerOf(sb); j != nil {
		j.tell(sb.Name, sb)
	}
}

// SandboxDeleted takes in that a sandbox is gone.
func (a *Allocator) SandboxDeleted(sb *v1alpha1.Sandbox) {
	a.feed.SandboxDeleted(sb)
	a.lag.hears(version(sb))
	if j := a.ownerOf(sb); j != nil {
		j.tell(sb.Name, nil)
	}
}

func (a *Allocator) ownerOf(sb *v1alpha1.Sandbox) *job {
	if owner := sb.Annotations[v1alpha1.AnnotationOwner]; owner != "" {
		return a.jobs.of(types.UID(owner))
	}
	return nil
}
