// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rebind opens claims of agent-sandbox again that have lost their sandbox.
package rebind

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// AtOnce is how many claims that may have lost their sandbox a server looks at at the same time,
// so that the others of the workers continue binding.
const AtOnce = 8

// Rebinder opens claims again that are bound for as long as they exist and have lost their
// sandbox; then they are unfinished, and the allocator binds another to them. It knows a claim
// from when there may be a reason to look at it until it has been looked at. What it does
// follows from the store: the claim, and the sandbox that it names.
type Rebinder struct {
	reconciler *reconciler.Reconciler
	store      storage.Store
	clock      clock.PassiveClock

	mu    sync.Mutex
	known map[types.UID]suspect
}

// suspect is a claim that may have lost its sandbox.
type suspect struct {
	types.NamespacedName
	// listed is the claim as a list had it, if there is no other reason to look at it than
	// the list: most of those have lost nothing, which the cache of sandboxes shows.
	listed *v1alpha1.SandboxClaim
	// events counts the reasons to look at it.
	events int
}

// New returns a Rebinder that knows no claims.
func New(r *reconciler.Reconciler, store storage.Store, c clock.PassiveClock) *Rebinder {
	return &Rebinder{reconciler: r, store: store, clock: c, known: map[types.UID]suspect{}}
}

// ObserveSandbox takes in the state of a sandbox: one that is being deleted is lost to its claim.
func (r *Rebinder) ObserveSandbox(sb *v1alpha1.Sandbox) {
	if sb.DeletionTimestamp != nil {
		r.ObserveSandboxDeleted(sb)
	}
}

// ObserveSandboxDeleted takes in that a sandbox is gone.
func (r *Rebinder) ObserveSandboxDeleted(sb *v1alpha1.Sandbox) {
	uid, name := types.UID(sb.Annotations[v1alpha1.AnnotationOwner]), sb.Labels[v1alpha1.LabelClaimName]
	if v1alpha1.OfAgentSandbox(sb) && uid != "" && name != "" {
		r.enqueue(uid, suspect{NamespacedName: types.NamespacedName{Namespace: sb.Namespace, Name: name}})
	}
}

// ObserveClaim takes in the state of a claim. One that says that its sandbox is missing is
// looked at: the controller that follows sandboxes has seen what no watch of this server shows, such
// as a sandbox that is another's.
func (r *Rebinder) ObserveClaim(claim *v1alpha1.SandboxClaim) {
	if claims.SaysMissing(claim) && plan.CanRebind(claim, r.clock.Now()) {
		r.enqueue(claim.UID, suspect{NamespacedName: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}})
	}
}

// Listed takes in a claim of a list: it may have lost its sandbox while no server was there.
func (r *Rebinder) Listed(claim *v1alpha1.SandboxClaim) {
	if plan.CanRebind(claim, r.clock.Now()) {
		r.enqueue(claim.UID, suspect{NamespacedName: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, listed: claim})
	}
}

func (r *Rebinder) enqueue(uid types.UID, at suspect) {
	r.mu.Lock()
	known, ok := r.known[uid]
	if ok && known.listed == nil {
		at = known
	}
	at.events = known.events + 1
	r.known[uid] = at
	r.mu.Unlock()
	r.reconciler.Queue.Add(uid)
}

// Wake looks again at all that are known, because the servers are others.
func (r *Rebinder) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.known {
		r.reconciler.Queue.Add(uid)
	}
}

func (r *Rebinder) get(uid types.UID) (suspect, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.known[uid]
	return at, ok
}

// forget forgets a claim that has been looked at, unless there was another event.
func (r *Rebinder) forget(uid types.UID, at suspect) {
	r.mu.Lock()
	if r.known[uid].events == at.events {
		delete(r.known, uid)
	}
	r.mu.Unlock()
}

// NamespaceOf implements reconciler.Subreconciler.
func (r *Rebinder) NamespaceOf(uid types.UID) string {
	at, _ := r.get(uid)
	return at.Namespace
}

// Reconcile implements reconciler.Subreconciler.
func (r *Rebinder) Reconcile(ctx context.Context, uid types.UID) (again time.Duration, err error) {
	if at, ok := r.get(uid); ok {
		return r.rebind(ctx, uid, at)
	}
	return 0, nil
}

// sandboxOf returns the sandbox that a claim names, no older than a resourceVersion; nil if
// there is none.
func (r *Rebinder) sandboxOf(ctx context.Context, claim *v1alpha1.SandboxClaim, notOlderThan uint64) (*v1alpha1.Sandbox, error) {
	name := claims.AgentSandbox(claim)
	if name == "" {
		return nil, nil
	}
	return r.store.Sandbox(ctx, claim.Namespace, name, notOlderThan)
}

// otherServer is after what time a server looks whether the one that a claim belongs to has
// opened it again.
const otherServer = 30 * time.Second

// rebind reopens a claim that has lost its sandbox, and returns after what time to look
// again; 0 means when there is an event.
func (r *Rebinder) rebind(ctx context.Context, uid types.UID, at suspect) (time.Duration, error) {
	if at.listed != nil {
		if sb, err := r.sandboxOf(ctx, at.listed, 0); err == nil && !plan.HasLostSandbox(at.listed, sb) {
			r.forget(uid, at)
			return 0, nil
		}
	}
	claim, err := r.store.Claim(ctx, at.Namespace, at.Name)
	if err != nil {
		return 0, err
	}
	now := r.clock.Now()
	if claim == nil || claim.UID != uid || !plan.CanRebind(claim, now) {
		r.forget(uid, at)
		return 0, nil
	}
	sb, err := r.sandboxOf(ctx, claim, poolindex.ParseVersion(claim.ResourceVersion))
	if err != nil {
		return 0, err
	}
	if !plan.HasLostSandbox(claim, sb) {
		r.forget(uid, at)
		return 0, nil
	}
	if !r.reconciler.IsMine(uid) {
		return otherServer, nil
	}
	if rest := plan.ReopenTime(claim).Sub(now); rest > 0 {
		return rest, nil
	}
	if err := storage.UpdateClaim(ctx, r.store, plan.Reopen(claim, now)); err != nil {
		return 0, err
	}
	klog.FromContext(ctx).V(2).Info("Reopened claim that has lost its sandbox", "claim", at.NamespacedName)
	r.forget(uid, at)
	return 0, nil
}
