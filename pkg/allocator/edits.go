// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
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

// editWorkers is how many claims a server brings changed metadata of to sandboxes at the
// same time. They are not the workers that bind, and one namespace has as many of them as
// it leaves free, so that who changes claims without end keeps no other from sandboxes.
const editWorkers = 16

// edits are the claims that are Completed and have been given other metadata since, on
// every server, and with those that this server works at what it knows of them. A claim
// that is not changed is not among them, and one leaves when its sandboxes have what it
// says and nothing has been written for a while. It is level-triggered: what is left to do is
// in the claim's observedGeneration, and which sandboxes have it is in these.
type edits struct {
	*passer
	// prefers says which claims are this server's; nil, or a nil function, is all.
	prefers *atomic.Pointer[func(namespace, name string) bool]
	turns   workqueue.TypedRateLimitingInterface[types.UID]
	share   *workShare

	mu    sync.Mutex
	byUID map[types.UID]*edited
}

// edited is one such claim.
type edited struct {
	mu sync.Mutex
	// claim is the newest that is known, and deleted reports whether it is gone.
	claim   *v1alpha1.SandboxClaim
	deleted bool

	// The rest is for the goroutine that is at the claim. held are its sandboxes, ordered by
	// name, as far as read is true.
	held []*v1alpha1.Sandbox
	read bool
	pass *metadataPass
}

func newEdits(c clock.WithTicker, p *passer, prefers *atomic.Pointer[func(namespace, name string) bool]) *edits {
	turns := newTurns(c, "edited_claims")
	return &edits{
		passer: p, prefers: prefers, turns: turns, byUID: map[types.UID]*edited{},
		share: newWorkShare(editWorkers, func(uid types.UID) { turns.Add(uid) }),
	}
}

// run works until ctx is done, and returns when it has stopped.
func (e *edits) run(ctx context.Context) {
	var running sync.WaitGroup
	for range editWorkers {
		running.Go(func() {
			for e.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	e.turns.ShutDown()
	running.Wait()
}

// observeClaim takes in the state of a claim.
func (e *edits) observeClaim(claim *v1alpha1.SandboxClaim) {
	e.mu.Lock()
	defer e.mu.Unlock() // so that it is not forgotten meanwhile
	known := e.byUID[claim.UID]
	if known == nil && claims.MetadataBehind(claim) {
		known = &edited{pass: newMetadataPass()}
		e.byUID[claim.UID] = known
	}
	if known != nil && known.is(claim) {
		e.turns.Add(claim.UID)
	}
}

// claimIsGone takes in that a claim is gone.
func (e *edits) claimIsGone(uid types.UID) {
	e.mu.Lock()
	known := e.byUID[uid]
	e.mu.Unlock()
	if known == nil {
		return
	}
	known.mu.Lock()
	known.deleted = true
	known.mu.Unlock()
	e.turns.Add(uid)
}

// listed takes in which claims there are as of a resourceVersion.
func (e *edits) listed(all map[types.UID]bool, resourceVersion uint64) {
	for uid, known := range e.all() {
		if claim := known.latest(); claim != nil && !all[uid] && version(claim) <= resourceVersion {
			e.claimIsGone(uid)
		}
	}
}

// wake begins a turn of every claim.
func (e *edits) wake() {
	for uid := range e.all() {
		e.turns.Add(uid)
	}
}

func (e *edits) all() map[types.UID]*edited {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.byUID)
}

// is takes in the state of the claim, and reports whether that is news.
func (c *edited) is(claim *v1alpha1.SandboxClaim) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claim != nil && version(claim) <= version(c.claim) {
		return false
	}
	c.claim = claim
	return true
}

// latest is the claim as it stands; nil if it is gone.
func (c *edited) latest() *v1alpha1.SandboxClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deleted {
		return nil
	}
	return c.claim
}

// next does the next turn. It returns false when there are no more.
func (e *edits) next(ctx context.Context) bool {
	uid, shutdown := e.turns.Get()
	if shutdown {
		return false
	}
	defer e.turns.Done(uid)
	e.mu.Lock()
	known := e.byUID[uid]
	e.mu.Unlock()
	if known == nil || ctx.Err() != nil {
		e.share.wake()
		return true
	}
	claim := known.latest()
	if claim == nil {
		e.forget(uid)
		e.share.wake()
		return true
	}
	if !e.share.begin(claim.Namespace, uid) {
		return true
	}
	defer e.share.end(claim.Namespace)
	again, err := e.turn(ctx, uid, known, claim)
	switch {
	case ctx.Err() != nil: // it goes on after a restart, or on another server
	case throttledFor(err) > 0:
		e.turns.Forget(uid)
		e.turns.AddAfter(uid, throttledFor(err))
	case err != nil:
		if !errors.Is(err, errClaimMoved) && !errors.Is(err, errAgain) {
			klog.FromContext(ctx).Error(err, "Bringing changed metadata to sandboxes goes on after an error", "claim", klog.KObj(claim))
		}
		known.held, known.read = nil, false // whatever was written, the store knows
		e.turns.AddRateLimited(uid)
	case again > 0:
		e.turns.Forget(uid)
		e.turns.AddAfter(uid, again)
	}
	return true
}

// turn does one step for a claim, and returns after what time to do the next; 0 means when
// there is news.
func (e *edits) turn(ctx context.Context, uid types.UID, known *edited, claim *v1alpha1.SandboxClaim) (time.Duration, error) {
	now := e.clock.Now()
	switch {
	case !e.isMine(uid):
		known.held, known.read = nil, false
		if !claims.MetadataBehind(claim) {
			e.forget(uid)
		}
		return 0, nil
	case claims.MetadataBehind(claim):
		if !known.pass.isDone(claim) {
			known.pass.begin(claim, now)
		}
	case known.pass.isQuiet(now):
		e.forget(uid)
		return 0, nil
	case known.pass.spacing.over(now):
		// Nothing is to be brought, also where a change was not: others have brought it, or
		// the claim is opened again or deleted. Only the pauses are remembered.
		return known.pass.spacing.until.Add(quietTime).Sub(now), nil
	}
	if !known.pass.spacing.over(now) {
		return known.pass.spacing.until.Sub(now), nil
	}
	if !known.pass.isDone(claim) {
		if err := e.read(ctx, known, claim); err != nil {
			return 0, err
		}
		wrote, done, err := e.step(ctx, known.pass, claim, known.held)
		if err != nil {
			return 0, err
		}
		known.wrote(wrote)
		if !done {
			return soon, nil
		}
	}
	if err := e.observe(ctx, known, claim); err != nil {
		return 0, err
	}
	known.held, known.read = nil, false
	return soon, nil
}

// read reads the sandboxes of the claim, if they are not known.
func (e *edits) read(ctx context.Context, known *edited, claim *v1alpha1.SandboxClaim) error {
	if known.read {
		return nil
	}
	held, err := e.store.SandboxesOf(ctx, claim)
	if err != nil {
		return err
	}
	known.held = slices.Clone(held)
	slices.SortFunc(known.held, byName)
	known.read = true
	return nil
}

func byName(a, b *v1alpha1.Sandbox) int { return cmp.Compare(a.Name, b.Name) }

// wrote takes in what a step wrote.
func (c *edited) wrote(sandboxes []*v1alpha1.Sandbox) {
	for _, sb := range sandboxes {
		if at, found := slices.BinarySearchFunc(c.held, sb, byName); found {
			c.held[at] = sb
		}
	}
}

// observe notes in the claim that its sandboxes have what it says.
func (e *edits) observe(ctx context.Context, known *edited, claim *v1alpha1.SandboxClaim) error {
	next := plan.MetadataBrought(claim, &known.pass.report, known.held, e.clock.Now())
	txn := e.store.Begin()
	defer txn.Release()
	if err := txn.UpdateClaim(ctx, next, int64(version(claim))); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.commitTimeout)
	defer cancel()
	if err := e.passer.commitClaim(within, txn); err != nil {
		return err
	}
	known.is(next)
	return nil
}

// isMine reports whether this server works on a claim.
func (e *edits) isMine(uid types.UID) bool {
	prefers := e.prefers.Load()
	return prefers == nil || *prefers == nil || (*prefers)("", string(uid))
}

// forget ends the work on a claim, unless there is news of it.
func (e *edits) forget(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.byUID[uid]; known != nil {
		if claim := known.latest(); claim == nil || !claims.MetadataBehind(claim) {
			delete(e.byUID, uid)
		}
	}
	e.turns.Forget(uid)
}
