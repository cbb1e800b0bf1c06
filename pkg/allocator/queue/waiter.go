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
	// Sources are the pools that may serve it.
	Sources []Source
	// AtOnce reports whether it takes all it needs at once or nothing.
	AtOnce bool
	// Yields reports whether others may be served before it while it cannot be,
	// because the pools are not meant to ever hold as much as it needs at once.
	Yields bool
}

// Waiter is the place of one claim. It is made by NewWaiter.
type Waiter struct {
	since time.Time
	uid   types.UID
	wake  func()

	// Guarded by Queue.mu from here on. A waiter is in line while it needs something.
	Wants
	// couldSince is since when it could have had something, and gatherSince since when
	// it has kept from others what is not enough for it; zero if it does not.
	couldSince, gatherSince time.Time
}

// NewWaiter returns the place of a claim that came at since. wake is called when
// there is something for it. It must not block, nor call the queue.
func NewWaiter(since time.Time, uid types.UID, wake func()) *Waiter {
	return &Waiter{since: since, uid: uid, wake: wake}
}

// compare orders waiters by when they came, on whatever server, and after that by
// UID.
func (w *Waiter) compare(other *Waiter) int {
	return cmp.Or(w.since.Compare(other.since), cmp.Compare(w.uid, other.uid))
}

// lines are the pools in whose lines a waiter stands. One that no pool may serve
// stands in that of the pool without a name, which never has anything.
func (w *Wants) lines() []poolindex.Pool {
	if w.Need == 0 {
		return nil
	}
	if len(w.Sources) == 0 {
		return []poolindex.Pool{{}}
	}
	lines := make([]poolindex.Pool, 0, len(w.Sources))
	for _, s := range w.Sources {
		lines = append(lines, s.Pool)
	}
	return lines
}
