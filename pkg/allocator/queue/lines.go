// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

const (
	// takeWithin is how long a waiter that could be served keeps its place before
	// others. The server that works on its claim may be gone, or in trouble.
	takeWithin = 2 * time.Second
	// gatherWithin is how long a waiter that needs all at once keeps from others what
	// is not enough for it. It may never be.
	gatherWithin = 30 * time.Second
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

// lines are those of all pools of an index. Who calls its methods holds the lock of
// the queue.
type lines struct {
	index  *poolindex.Index
	clock  clock.PassiveClock
	byPool map[poolindex.Pool][]*Waiter
}

func (l *lines) take(from []Source, n int, atOnce bool) []poolindex.Candidate {
	if n <= 0 || atOnce && l.stock(from) < n {
		return nil
	}
	var taken []poolindex.Candidate
	for _, s := range byStock(from, l.index.Available) {
		if more := l.index.Take(s.Pool, n-len(taken)); taken == nil {
			taken = more // the usual case: all of one pool
		} else {
			taken = append(taken, more...)
		}
		if len(taken) >= n {
			return taken
		}
	}
	if atOnce { // the feed took some away in between
		l.index.Release(taken)
		return nil
	}
	return taken
}

// stock is how much the pools have together.
func (l *lines) stock(of []Source) int {
	total := 0
	for _, s := range of {
		total += l.index.Available(s.Pool)
	}
	return total
}

// unclaimed returns the sources for which nobody waits.
func (l *lines) unclaimed(sources []Source) []Source {
	if len(l.byPool) == 0 || !slices.ContainsFunc(sources, l.kept) {
		return sources
	}
	return slices.DeleteFunc(slices.Clone(sources), l.kept)
}

// kept reports whether the stock of a pool is kept for a waiter.
func (l *lines) kept(s Source) bool {
	return slices.ContainsFunc(l.byPool[s.Pool], func(w *Waiter) bool {
		switch {
		case l.late(w):
			return false
		case l.letsPass(w):
			return w.Need <= l.stock(l.open(w))
		}
		return true
	})
}

// late reports whether a waiter could have had something for too long.
func (l *lines) late(w *Waiter) bool {
	return !w.couldSince.IsZero() && l.clock.Since(w.couldSince) > takeWithin
}

// letsPass reports whether others may be served before a waiter while it cannot be.
func (l *lines) letsPass(w *Waiter) bool {
	return w.AtOnce && (w.Yields || !w.gatherSince.IsZero() && l.clock.Since(w.gatherSince) > gatherWithin)
}

// open returns the pools of w in whose lines nobody stands before it who lets nobody
// pass.
func (l *lines) open(w *Waiter) []Source {
	return slices.DeleteFunc(slices.Clone(w.Sources), func(s Source) bool {
		for _, other := range l.byPool[s.Pool] {
			if other == w {
				return false
			}
			if !l.late(other) && !l.letsPass(other) {
				return true
			}
		}
		return true // it is not in line
	})
}

// signal wakes the first in line of each pool that can be served.
func (l *lines) signal(pools ...poolindex.Pool) {
	for _, p := range pools {
		if len(l.byPool[p]) == 0 || l.index.Available(p) == 0 {
			continue
		}
		for _, w := range l.byPool[p] {
			stock := l.stock(l.open(w))
			if stock > 0 && (!w.AtOnce || stock >= w.Need) {
				if w.couldSince.IsZero() {
					w.couldSince = l.clock.Now()
				}
				w.wake()
				if !l.late(w) {
					break // what is left is for the next when this one has taken
				}
				continue
			}
			w.couldSince = time.Time{}
			if w.AtOnce && w.gatherSince.IsZero() {
				w.gatherSince = l.clock.Now()
			}
			if !l.letsPass(w) {
				break
			}
		}
	}
}

// drop takes w out of all lines.
func (l *lines) drop(w *Waiter) {
	for _, p := range w.lines() {
		line := slices.DeleteFunc(l.byPool[p], func(other *Waiter) bool { return other == w })
		if len(line) == 0 {
			delete(l.byPool, p)
			continue
		}
		l.byPool[p] = line
	}
}

// byStock puts sources into the order in which they are to be taken from now.
func byStock(sources []Source, stock func(poolindex.Pool) int) []Source {
	if len(sources) < 2 {
		return sources
	}
	stocks := make(map[poolindex.Pool]int, len(sources))
	for _, s := range sources {
		stocks[s.Pool] = stock(s.Pool)
	}
	ordered := slices.Clone(sources)
	slices.SortStableFunc(ordered, func(a, b Source) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(stocks[b.Pool], stocks[a.Pool]))
	})
	return ordered
}
