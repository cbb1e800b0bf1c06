// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// unfinishedClaims are the claims that are not at their end.
type unfinishedClaims struct {
	// due has the UIDs of the claims that are due.
	due   workqueue.TypedRateLimitingInterface[types.UID]
	queue *queue.Queue
	clock clock.PassiveClock
	// mine is how many of the claims this server works on, as of their last attempts.
	mine atomic.Int64
	// namespaces has the claims of byUID by namespace.
	namespaces claimsByNamespace

	// mu is held for one claim at a time, because each create, event and attempt needs it. Lock
	// order: the lock of a namespace in namespaces, then mu.
	mu    sync.Mutex
	byUID map[types.UID]*unfinishedClaim
	// byName are the UIDs of the claims of a name: one, and those that were deleted before.
	byName map[types.NamespacedName][]types.UID
}

func newUnfinishedClaims(c clock.WithTicker, q *queue.Queue, due workqueue.TypedRateLimitingInterface[types.UID]) *unfinishedClaims {
	return &unfinishedClaims{
		queue: q, clock: c, byUID: map[types.UID]*unfinishedClaim{}, byName: map[types.NamespacedName][]types.UID{},
		due: due, namespaces: newClaimsByNamespace(),
	}
}

// open adds a claim that this server is about to create, so that no event of it is
// lost. r is what was found for it. It is not reconciled before begin.
func (c *unfinishedClaims) open(ctx context.Context, claim *v1alpha1.SandboxClaim, now time.Time, r *reservation) *unfinishedClaim {
	u := c.newUnfinished(claim, r)
	u.start.created, u.work.span, u.work.opening = now, trace.SpanFromContext(ctx), true
	c.setMine(u, true)
	c.put(u, claim.UID)
	return u
}

// put adds a claim, unless there is one with its UID already.
func (c *unfinishedClaims) put(u *unfinishedClaim, uid types.UID) {
	inNamespace := c.namespaces.lock(u.key.Namespace)
	defer c.namespaces.unlock(u.key.Namespace, inNamespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byUID[uid] != nil {
		return
	}
	c.byUID[uid] = u
	c.byName[u.key] = append(c.byName[u.key], uid)
	inNamespace.byUID[uid] = u
}

// setMine sets whether this server works on a claim.
func (c *unfinishedClaims) setMine(u *unfinishedClaim, mine bool) {
	switch {
	case mine && !u.work.mine:
		c.mine.Add(1)
	case !mine && u.work.mine:
		c.mine.Add(-1)
	}
	u.work.mine = mine
}

// begin makes a claim due that was opened.
func (c *unfinishedClaims) begin(u *unfinishedClaim, uid types.UID) {
	c.mu.Lock()
	u.work.opening = false
	c.mu.Unlock()
	c.due.Add(uid)
}

// adopt adds a claim that this server did not create, and makes it due. sawCreation is set if the
// watch has just reported that it was created.
func (c *unfinishedClaims) adopt(claim *v1alpha1.SandboxClaim, sawCreation bool) {
	u := c.newUnfinished(claim, newReservation())
	u.claim, u.start.sawCreation = claim, sawCreation
	u.start.set(claim)
	c.put(u, claim.UID)
	c.due.Add(claim.UID)
}

// newUnfinished returns a claim whose position in the queue follows from its creationTimestamp, which
// no client can write, also on the server that creates it. So all servers agree on the position.
func (c *unfinishedClaims) newUnfinished(claim *v1alpha1.SandboxClaim, r *reservation) *unfinishedClaim {
	uid := claim.UID
	return &unfinishedClaim{
		key:   types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name},
		start: claimStart{clock: c.clock, seen: c.clock.Now()},
		waiter: queue.NewWaiter(c.queue, queue.Place{
			Namespace: claim.Namespace, Requester: claim.Annotations[v1alpha1.AnnotationClaimedBy],
			Since: claim.CreationTimestamp.Time, UID: uid,
		}, func() { c.due.Add(uid) }),
		done: make(chan struct{}), work: newWork(r), held: sandboxes{},
	}
}

// of returns the claim of a UID; nil if there is none.
func (c *unfinishedClaims) of(uid types.UID) *unfinishedClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byUID[uid]
}

// toWorkAt is like of, without the claims that are being created, on which their create works.
func (c *unfinishedClaims) toWorkAt(uid types.UID) *unfinishedClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.byUID[uid]; u != nil && !u.work.opening {
		return u
	}
	return nil
}

// forget ends the work on a claim, and adopts the claim again if it was reopened
// meanwhile.
func (c *unfinishedClaims) forget(u *unfinishedClaim, uid types.UID) {
	u.work.reservation.release(c.queue)
	u.work.setups.KeepOnly(nil)
	u.waiter.Leave()
	c.setMine(u, false)
	c.remove(u, uid)
	c.due.Forget(uid)
	close(u.done)
	if claim := u.latest(); claim != nil && poolindex.ParseVersion(claim.ResourceVersion) > 0 && claims.Unfinished(claim) {
		c.adopt(claim, false)
	}
}

// remove removes a claim.
func (c *unfinishedClaims) remove(u *unfinishedClaim, uid types.UID) {
	inNamespace := c.namespaces.lock(u.key.Namespace)
	defer c.namespaces.unlock(u.key.Namespace, inNamespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byUID, uid)
	if rest := slices.DeleteFunc(c.byName[u.key], func(other types.UID) bool { return other == uid }); len(rest) > 0 {
		c.byName[u.key] = rest
	} else {
		delete(c.byName, u.key)
	}
	delete(inNamespace.byUID, uid)
}

// wakeNamed makes the claims of a name due: a sandbox can be made under it now.
func (c *unfinishedClaims) wakeNamed(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uid := range c.byName[name] {
		c.due.Add(uid)
	}
}

// wake makes every claim due.
func (c *unfinishedClaims) wake() {
	for uid := range c.namespaces.all() {
		c.due.Add(uid)
	}
}

// ownerOf returns the unfinished claim that a sandbox is of; nil if there is none.
func (c *unfinishedClaims) ownerOf(sb *v1alpha1.Sandbox) (*unfinishedClaim, types.UID) {
	uid := types.UID(sb.Annotations[v1alpha1.AnnotationOwner])
	if uid == "" {
		return nil, ""
	}
	if u := c.of(uid); u != nil && u.owns(sb) {
		return u, uid
	}
	return nil, ""
}

// wakeServed wakes the claims of a namespace that the sets may serve, and those that
// are stuck.
func (c *unfinishedClaims) wakeServed(namespace string, sets ...*v1alpha1.SandboxSet) {
	for uid, u := range c.namespaces.in(namespace) {
		if u.canBeHelpedBy(sets...) {
			c.due.Add(uid)
		}
	}
}
