// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"slices"
	"time"

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

// unclaimed returns the sources for which no claim waits.
func (l *lines) unclaimed(sources []Source) []Source {
	if len(l.byPool) == 0 || !slices.ContainsFunc(sources, l.kept) {
		return sources
	}
	return slices.DeleteFunc(slices.Clone(sources), l.kept)
}

// served remembers during one call which waiters that let others pass can be served.
type served map[*Waiter]bool

// kept reports whether the stock of a pool is kept for a waiter.
func (l *lines) kept(s Source) bool {
	known := served{}
	return slices.ContainsFunc(l.byPool[s.Pool], func(w *Waiter) bool { return l.keeps(w, known, s.Pool) })
}

// keeps reports whether a waiter keeps the stock of its pools from those who came after
// it: not if it could have had something for too long, and if it lets others pass only
// while it can be served. No waiter before it keeps that of first.
func (l *lines) keeps(w *Waiter, known served, first poolindex.Pool) bool {
	switch {
	case l.late(w):
		return false
	case !l.letsPass(w):
		return true
	}
	can, ok := known[w]
	if !ok {
		can = w.Need <= l.stock(l.open(w, known, first))
		known[w] = can
	}
	return can
}

// late reports whether a waiter could have had something for too long.
func (l *lines) late(w *Waiter) bool {
	return !w.couldSince.IsZero() && l.clock.Since(w.couldSince) > takeWithin
}

// letsPass reports whether others may be served before a waiter while it cannot be.
func (l *lines) letsPass(w *Waiter) bool {
	return w.AtOnce && (w.Yields || !w.gatherSince.IsZero() && l.clock.Since(w.gatherSince) > gatherWithin)
}

// open returns the pools of w in whose lines no waiter before it keeps the stock, which
// is known of first, if that is a pool.
func (l *lines) open(w *Waiter, known served, first poolindex.Pool) []Source {
	return slices.DeleteFunc(slices.Clone(w.Sources), func(s Source) bool {
		if s.Pool == first {
			return false
		}
		for _, other := range l.byPool[s.Pool] {
			if other == w {
				return false
			}
			if l.keeps(other, known, s.Pool) {
				return true
			}
		}
		return true // it is not in line
	})
}

// signal wakes the first in line of each pool that can be served, unless that is the
// caller.
func (l *lines) signal(caller *Waiter, pools ...poolindex.Pool) {
	known := served{}
	for _, p := range pools {
		if len(l.byPool[p]) == 0 || l.index.Available(p) == 0 {
			continue
		}
		for _, w := range l.byPool[p] {
			stock := l.stock(l.open(w, known, p))
			if stock > 0 && (!w.AtOnce || stock >= w.Need) {
				if w.couldSince.IsZero() {
					w.couldSince = l.clock.Now()
				}
				if w != caller {
					w.wake()
				}
			} else {
				w.couldSince = time.Time{}
				if w.AtOnce && w.gatherSince.IsZero() {
					w.gatherSince = l.clock.Now()
				}
			}
			if l.keeps(w, known, p) {
				break // what is left is for the next when this one has taken
			}
		}
	}
}

// settle forgets of those who wait for an empty pool that they could have had something,
// if no other pool has anything for them either.
func (l *lines) settle(p poolindex.Pool) {
	if l.index.Available(p) > 0 {
		return
	}
	for _, w := range l.byPool[p] {
		if l.stock(w.Sources) == 0 {
			w.couldSince = time.Time{}
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
