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
	// Asked is what the claim asks for. A claim that asks for something else has come
	// when it began to.
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

// Waiter is the place of one claim. It is made by NewWaiter.
type Waiter struct {
	Place
	wake func()

	// Guarded by the lock of its shard from here on. A waiter is in lines while it needs
	// something.
	Wants
	// couldSince is since when it could have had something, and gatherSince since when
	// it has kept from others what is not enough for it; zero if it does not.
	couldSince, gatherSince time.Time
	// watched: another server works on the claim.
	watched bool
	// aside: it could have had something for too long, and keeps nothing from others.
	aside bool
}

// NewWaiter returns the place of a claim. wake is called when there is something for
// it. It must not block, nor call the queue.
func NewWaiter(place Place, wake func()) *Waiter {
	place.Since = toSecond(place.Since)
	return &Waiter{Place: place, wake: wake}
}

// toSecond is a time as it is stored. It has no reading of the monotonic clock: times
// with and without one have no common order once the wall clock was set back.
func toSecond(t time.Time) time.Time { return t.Truncate(time.Second) }

// compare orders the claims of a requester by when they came, on whatever server, and
// after that by UID.
func (w *Waiter) compare(other *Waiter) int {
	return cmp.Or(w.Since.Compare(other.Since), cmp.Compare(w.UID, other.UID))
}

// hasSamePlace reports whether a waiter that wants something else from now on, of the same
// pools, stands where it does.
func (w *Waiter) hasSamePlace(wants *Wants) bool {
	if w.isWhole() != wants.isWhole() {
		return false
	}
	return !w.isWhole() || w.Need == wants.Need && w.Yields == wants.Yields
}

// pools are those in whose lines a waiter stands that wants this. One that no pool may
// serve stands in that of the pool without a name, which never has anything.
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
