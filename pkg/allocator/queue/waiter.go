// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// Source is a pool that may serve a claim.
type Source struct {
	Pool poolindex.Pool
	// Rank comes before stock: the pools of the lowest rank are taken from first.
	Rank int
}

// Wants is what a claim waits for.
type Wants struct {
	// Need is how many sandboxes it lacks; with 0 it does not wait.
	Need int
	// Has is how many it has got: those that its status counts, and those that are taken
	// and not written yet.
	Has int
	// Sources are the pools that may serve it. They are of its namespace.
	Sources []Source
	// AtOnce reports whether it takes all it needs at once or nothing.
	AtOnce bool
	// Yields reports whether others may be served before it while it cannot be,
	// because the pools are not meant to ever hold as much as it needs at once.
	Yields bool
	// Asked is what the claim asks for. A claim that asks for something else from now on is
	// placed as one that came now.
	Asked string
}

// isWhole reports whether a part of what is wanted is of no use.
func (w *Wants) isWhole() bool { return w.AtOnce && w.Need > 1 }

// Place is what decides the position of a claim in a line. It is read from what is stored,
// so that all servers decide alike.
type Place struct {
	Namespace string
	// Requester is who created the claim.
	Requester string
	// Since is when it was created, in seconds of the wall clock, as it is stored:
	// NewWaiter drops the rest.
	Since time.Time
	UID   types.UID
}

// Waiter is one claim in a queue. It is made by NewWaiter, and is safe for
// concurrent use.
type Waiter struct {
	Place
	wake  func()
	shard *shard

	// Guarded by the lock of the shard from here on, with which unexported methods are called.
	// A waiter is in lines while it needs something.
	wants Wants
	// couldSince is since when it could have had something, and gatherSince since when
	// it has kept from others what is not enough for it; zero if it does not.
	couldSince, gatherSince time.Time
	// watched is set if another server works on the claim.
	watched bool
	// aside is set if it could have had something for too long: it keeps nothing from others.
	aside bool
}

// NewWaiter returns a waiter for the claim at a place. wake is called when there is something for
// it. It must not block, nor call the queue.
func NewWaiter(q *Queue, place Place, wake func()) *Waiter {
	place.Since = toSecond(place.Since)
	return &Waiter{Place: place, wake: wake, shard: q.shardOf(place.Namespace)}
}

// Wait says what a waiter wants from now on, and puts it into its lines, or takes it out,
// accordingly. It does not wake the waiter itself: the caller takes what there is now, or has
// just done so.
func (w *Waiter) Wait(wants Wants) {
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	wants.Need = max(0, wants.Need)
	w.shard.wait(w, wants, false, 0)
}

// Watch is Wait for a claim that another server works on: what it has more than before
// it has got there. It may need less for other reasons.
func (w *Waiter) Watch(wants Wants) {
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	wants.Need = max(0, wants.Need)
	w.shard.wait(w, wants, true, wants.Has-w.wants.Has)
}

// Served is Leave for a claim at its end, which another server may have brought it to
// and which has that many sandboxes then.
func (w *Waiter) Served(has int) {
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	w.shard.wait(w, Wants{}, w.watched, has-w.wants.Has)
}

// Join is Wait for a claim that is about to be stored, if HasRoom for it. It reports
// whether the claim waits now.
func (w *Waiter) Join(wants Wants, most int) bool {
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	if w.wants.Need == 0 && !w.shard.waiting[w.Namespace].hasRoom(w.Requester, most) {
		return false
	}
	w.shard.wait(w, wants, w.watched, 0)
	return true
}

// Leave takes a waiter out of all lines.
func (w *Waiter) Leave() {
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	if w.wants.Need > 0 { // a claim that got all at once is in no line
		w.shard.wait(w, Wants{}, w.watched, 0)
	}
	w.wants = Wants{}
}

// Take takes up to n sandboxes for a waiter if it is its turn, or as many as it needs at once. The
// waiter needs that many fewer then.
func (w *Waiter) Take(n int) []poolindex.Candidate {
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	w.couldSince = time.Time{}
	if w.wants.Need == 0 {
		return nil
	}
	if w.aside {
		w.readmit()
		w.shard.wakeNext(w, w.pools(&w.wants)...)
	}
	taken := w.shard.takeOpen(w.shard.openTo(w), min(n, w.wants.Need), w.wants.isWhole())
	if len(taken) > 0 {
		left := w.wants
		left.Need -= len(taken)
		left.Has += len(taken)
		w.shard.wait(w, left, w.watched, len(taken))
	}
	return taken
}

// toSecond is a time as it is stored. It has no reading of the monotonic clock: times
// with and without one have no common order once the wall clock was set back.
func toSecond(t time.Time) time.Time { return t.Truncate(time.Second) }

// compare orders the claims of a requester by when they came, on whatever server, and
// after that by UID.
func (w *Waiter) compare(other *Waiter) int {
	return cmp.Or(w.Since.Compare(other.Since), cmp.Compare(w.UID, other.UID))
}

// isSamePlace reports whether a waiter keeps its position in its lines if it wants something else
// from now on, of the same pools.
func isSamePlace(before, after *Wants) bool {
	if before.isWhole() != after.isWhole() {
		return false
	}
	return !before.isWhole() || before.Need == after.Need && before.Yields == after.Yields
}

// pools returns the pools in whose lines a waiter is that wants this. A waiter that no pool may
// serve is in the line of the pool without a name, which never has anything.
func (w *Waiter) pools(wants *Wants) []poolindex.Pool {
	switch {
	case wants.Need == 0:
		return nil
	case len(wants.Sources) == 0:
		return []poolindex.Pool{{Namespace: w.Namespace}}
	}
	pools := make([]poolindex.Pool, 0, len(wants.Sources))
	for _, s := range wants.Sources {
		pools = append(pools, s.Pool)
	}
	return pools
}
