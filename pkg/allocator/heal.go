// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// healWorkers is how many claims that may have lost their sandbox a server looks at at the
// same time. They are not the workers that bind.
const healWorkers = 8

// healer opens claims again that are bound for as long as they exist and have lost their
// sandbox; then they are unfinished, and the worker binds another to them. It knows a claim
// from when there may be a reason to look at it until it has been looked at. What it does
// follows from the store: the claim, and the sandbox that it names.
type healer struct {
	*passer
	// prefers says which claims are this server's; nil, or a nil function, is all.
	prefers *atomic.Pointer[func(namespace, name string) bool]
	turns   workqueue.TypedRateLimitingInterface[types.UID]
	share   *workShare

	mu    sync.Mutex
	known map[types.UID]lookedAt
}

// lookedAt is a claim that may have lost its sandbox.
type lookedAt struct {
	types.NamespacedName
	// listed is the claim as a list had it, if there is no other reason to look at it than
	// the list: most of those have lost nothing, which the cache of sandboxes tells.
	listed *v1alpha1.SandboxClaim
	// news counts the reasons to look at it.
	news int
}

func newHealer(c clock.WithTicker, p *passer, prefers *atomic.Pointer[func(namespace, name string) bool]) *healer {
	turns := newTurns(c, "lost_sandboxes")
	return &healer{
		passer: p, prefers: prefers, turns: turns, known: map[types.UID]lookedAt{},
		share: newWorkShare(healWorkers, func(uid types.UID) { turns.Add(uid) }),
	}
}

// run works until ctx is done, and returns when it has stopped.
func (h *healer) run(ctx context.Context) {
	var running sync.WaitGroup
	for range healWorkers {
		running.Go(func() {
			for h.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	h.turns.ShutDown()
	running.Wait()
}

// sandboxIs takes in the state of a sandbox: one that is being deleted is lost to its claim.
func (h *healer) sandboxIs(sb *v1alpha1.Sandbox) {
	if sb.DeletionTimestamp != nil {
		h.sandboxIsGone(sb)
	}
}

// sandboxIsGone takes in that a sandbox is gone.
func (h *healer) sandboxIsGone(sb *v1alpha1.Sandbox) {
	uid, name := types.UID(sb.Annotations[v1alpha1.AnnotationOwner]), sb.Labels[v1alpha1.LabelClaimName]
	if v1alpha1.OfAgentSandbox(sb) && uid != "" && name != "" {
		h.look(uid, lookedAt{NamespacedName: types.NamespacedName{Namespace: sb.Namespace, Name: name}})
	}
}

// observeClaim takes in the state of a claim. One that says that its sandbox is missing is
// looked at: the controller that follows sandboxes has seen what no watch of this server
// tells, such as a sandbox that is another's.
func (h *healer) observeClaim(claim *v1alpha1.SandboxClaim) {
	if claims.SaysMissing(claim) && plan.Heals(claim, h.clock.Now()) {
		h.look(claim.UID, lookedAt{NamespacedName: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}})
	}
}

// listed takes in a claim of a list: it may have lost its sandbox while no server was there.
func (h *healer) listed(claim *v1alpha1.SandboxClaim) {
	if plan.Heals(claim, h.clock.Now()) {
		h.look(claim.UID, lookedAt{NamespacedName: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, listed: claim})
	}
}

func (h *healer) look(uid types.UID, at lookedAt) {
	h.mu.Lock()
	known, ok := h.known[uid]
	if ok && known.listed == nil {
		at = known
	}
	at.news = known.news + 1
	h.known[uid] = at
	h.mu.Unlock()
	h.turns.Add(uid)
}

// wake looks again at all that are known, because the servers are others.
func (h *healer) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid := range h.known {
		h.turns.Add(uid)
	}
}

func (h *healer) at(uid types.UID) (lookedAt, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.known[uid]
	return at, ok
}

// forget forgets a claim that has been looked at, unless there is news of it.
func (h *healer) forget(uid types.UID, at lookedAt) {
	h.mu.Lock()
	if h.known[uid].news == at.news {
		delete(h.known, uid)
	}
	h.mu.Unlock()
	h.turns.Forget(uid)
}

// next looks at the next claim. It returns false when there are no more.
func (h *healer) next(ctx context.Context) bool {
	uid, shutdown := h.turns.Get()
	if shutdown {
		return false
	}
	defer h.turns.Done(uid)
	at, ok := h.at(uid)
	if !ok || ctx.Err() != nil {
		h.share.wake()
		return true
	}
	if !h.share.begin(at.Namespace, uid) {
		return true
	}
	defer h.share.end(at.Namespace)
	again, err := h.turn(ctx, uid, at)
	switch {
	case ctx.Err() != nil: // it goes on after a restart, or on another server
	case err != nil:
		if !errors.Is(err, errClaimMoved) && !errors.Is(err, errAgain) {
			klog.FromContext(ctx).Error(err, "Finding out whether a claim has lost its sandbox goes on after an error", "claim", at.NamespacedName)
		}
		h.turns.AddRateLimited(uid)
	case again > 0:
		h.turns.Forget(uid)
		h.turns.AddAfter(uid, again)
	}
	return true
}

// sandboxOf returns the sandbox that a claim names, no older than a resourceVersion; nil if
// there is none.
func (h *healer) sandboxOf(ctx context.Context, claim *v1alpha1.SandboxClaim, notOlderThan uint64) (*v1alpha1.Sandbox, error) {
	name := claims.AgentSandbox(claim)
	if name == "" {
		return nil, nil
	}
	return h.store.Sandbox(ctx, claim.Namespace, name, notOlderThan)
}

// otherServer is after what time a server looks whether the one that a claim belongs to has
// opened it again.
const otherServer = 30 * time.Second

// turn opens a claim again that has lost its sandbox, and returns after what time to look
// again; 0 means when there is news.
func (h *healer) turn(ctx context.Context, uid types.UID, at lookedAt) (time.Duration, error) {
	if at.listed != nil {
		if sb, err := h.sandboxOf(ctx, at.listed, 0); err == nil && !plan.HasLost(at.listed, sb) {
			h.forget(uid, at)
			return 0, nil
		}
	}
	claim, err := h.store.Claim(ctx, at.Namespace, at.Name)
	if err != nil {
		return 0, err
	}
	now := h.clock.Now()
	if claim == nil || claim.UID != uid || !plan.Heals(claim, now) {
		h.forget(uid, at)
		return 0, nil
	}
	sb, err := h.sandboxOf(ctx, claim, version(claim))
	if err != nil {
		return 0, err
	}
	if !plan.HasLost(claim, sb) {
		h.forget(uid, at)
		return 0, nil
	}
	if prefers := h.prefers.Load(); prefers != nil && *prefers != nil && !(*prefers)("", string(uid)) {
		return otherServer, nil
	}
	if rest := plan.ReopensAt(claim).Sub(now); rest > 0 {
		return rest, nil
	}
	if err := h.reopen(ctx, plan.Reopened(claim, now)); err != nil {
		return 0, err
	}
	klog.FromContext(ctx).V(2).Info("A claim has lost its sandbox and gets another", "claim", at.NamespacedName)
	h.forget(uid, at)
	return 0, nil
}

// reopen writes a claim that was opened again, unless it has changed since it was read.
func (h *healer) reopen(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	txn := h.store.Begin()
	defer txn.Release()
	if err := txn.UpdateClaim(ctx, claim, int64(version(claim))); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.commitTimeout)
	defer cancel()
	return h.commitClaim(within, txn)
}
