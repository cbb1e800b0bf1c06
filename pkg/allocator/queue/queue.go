// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue keeps the claims that wait for sandboxes in lines, one for each pool,
// in the order in which they came. All sandboxes are taken from the index through it.
// It deals nothing out: it wakes the claim that is first, which takes for itself, and
// it keeps newcomers from overtaking.
//
// A claim that several pools may serve stands in the line of each, and takes from
// whichever it is first in. One that needs all its sandboxes at once adds up what the
// pools have in whose lines nobody stands before it, and holds up each of these lines
// until that is enough.
//
// Worked example: b needs 3 at once, of the pools x and y, and came after a, which
// needs 2 of y at once. x gets 3: b is served from x alone. Had x got 2 and y 1, b
// would have to wait, because that one is kept for a; once y has 3, a takes 2, and b
// the third, with both of x.
package queue

import (
	"cmp"
	"slices"
	"sync"
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

// Queue is the lines of all pools of an index. It is safe for concurrent use.
type Queue struct {
	index *poolindex.Index
	clock clock.PassiveClock

	mu    sync.Mutex
	lines map[poolindex.Pool][]*Waiter
}

// New returns a queue before an index.
func New(index *poolindex.Index, c clock.PassiveClock) *Queue {
	return &Queue{index: index, clock: c, lines: map[poolindex.Pool][]*Waiter{}}
}

// Wait says what a waiter wants from now on, and puts it in line, or takes it out,
// accordingly.
func (q *Queue) Wait(w *Waiter, wants Wants) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wants.Need = max(0, wants.Need)
	before, after := w.lines(), wants.lines()
	stays := slices.Equal(before, after)
	if !stays {
		q.drop(w)
	}
	if !stays || wants.Need < w.Need { // another server may have taken for it
		w.couldSince, w.gatherSince = time.Time{}, time.Time{}
	}
	w.Wants = wants
	if !stays {
		for _, p := range after {
			at, _ := slices.BinarySearchFunc(q.lines[p], w, (*Waiter).compare)
			q.lines[p] = slices.Insert(q.lines[p], at, w)
		}
	}
	q.signal(append(before, after...)...)
}

// Leave takes a waiter out of line.
func (q *Queue) Leave(w *Waiter) { q.Wait(w, Wants{}) }

// Take hands out up to n sandboxes, or with atOnce n or none, those of the preferred
// pools first: to a waiter what nobody before it in line waits for, and to a newcomer,
// which is nil, what nobody waits for. What a waiter takes it no longer needs.
func (q *Queue) Take(w *Waiter, sources []Source, n int, atOnce bool) []poolindex.Candidate {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w == nil {
		return q.take(q.unclaimed(sources), n, atOnce)
	}
	taken := q.take(q.open(w, served{}), n, atOnce)
	w.couldSince = time.Time{}
	if len(taken) > 0 {
		w.gatherSince = time.Time{}
		left := w.Wants
		left.Need = max(0, w.Need-len(taken))
		lines := w.lines()
		if left.Need == 0 {
			q.drop(w)
		}
		w.Wants = left
		q.signal(lines...)
	}
	return taken
}

func (q *Queue) take(from []Source, n int, atOnce bool) []poolindex.Candidate {
	if n <= 0 || atOnce && q.stock(from) < n {
		return nil
	}
	var taken []poolindex.Candidate
	for _, s := range byStock(from, q.index.Available) {
		if more := q.index.Take(s.Pool, n-len(taken)); taken == nil {
			taken = more // the usual case: all of one pool
		} else {
			taken = append(taken, more...)
		}
		if len(taken) >= n {
			return taken
		}
	}
	if atOnce { // the feed took some away in between
		q.index.Release(taken)
		return nil
	}
	return taken
}

// Peek returns what Take would hand out to a newcomer, and takes nothing.
func (q *Queue) Peek(sources []Source, n int) []poolindex.Candidate {
	q.mu.Lock()
	defer q.mu.Unlock()
	var peeked []poolindex.Candidate
	for _, s := range byStock(q.unclaimed(sources), q.index.Available) {
		peeked = append(peeked, q.index.Peek(s.Pool, n-len(peeked))...)
	}
	return peeked
}

// Free is how much of the pools a newcomer could take.
func (q *Queue) Free(sources []Source) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stock(q.unclaimed(sources))
}

// stock is how much the pools have together.
func (q *Queue) stock(of []Source) int {
	total := 0
	for _, s := range of {
		total += q.index.Available(s.Pool)
	}
	return total
}

// served remembers during one call which waiters that let others pass can be served.
type served map[*Waiter]bool

// unclaimed returns the sources for which nobody waits; q.mu is held.
func (q *Queue) unclaimed(sources []Source) []Source {
	if len(q.lines) == 0 || !slices.ContainsFunc(sources, q.kept) {
		return sources
	}
	return slices.DeleteFunc(slices.Clone(sources), q.kept)
}

// kept reports whether the stock of a pool is kept for a waiter; q.mu is held.
func (q *Queue) kept(s Source) bool {
	known := served{}
	return slices.ContainsFunc(q.lines[s.Pool], func(w *Waiter) bool { return q.keeps(w, known) })
}

// keeps reports whether a waiter keeps the stock of its pools from those who came after
// it: not if it could have had something for too long, and if it lets others pass only
// while it can be served.
func (q *Queue) keeps(w *Waiter, known served) bool {
	switch {
	case q.late(w):
		return false
	case !q.letsPass(w):
		return true
	}
	can, ok := known[w]
	if !ok {
		can = w.Need <= q.stock(q.open(w, known))
		known[w] = can
	}
	return can
}

// late reports whether a waiter could have had something for too long.
func (q *Queue) late(w *Waiter) bool {
	return !w.couldSince.IsZero() && q.clock.Since(w.couldSince) > takeWithin
}

// letsPass reports whether others may be served before a waiter while it cannot be.
func (q *Queue) letsPass(w *Waiter) bool {
	return w.AtOnce && (w.Yields || !w.gatherSince.IsZero() && q.clock.Since(w.gatherSince) > gatherWithin)
}

// open returns the pools of w in whose lines nobody before it keeps the stock; q.mu is
// held.
func (q *Queue) open(w *Waiter, known served) []Source {
	return slices.DeleteFunc(slices.Clone(w.Sources), func(s Source) bool {
		for _, other := range q.lines[s.Pool] {
			if other == w {
				return false
			}
			if q.keeps(other, known) {
				return true
			}
		}
		return true // it is not in line
	})
}

// Release puts candidates back into the index, for the waiter or newcomer that is
// next.
func (q *Queue) Release(cs []poolindex.Candidate) {
	q.answer(cs, func() { q.index.Release(cs) })
}

// Bound says that candidates were claimed at resourceVersion.
func (q *Queue) Bound(cs []poolindex.Candidate, resourceVersion uint64) {
	q.answer(cs, func() { q.index.Bound(cs, resourceVersion) })
}

// Discard says that candidates turned out to have moved.
func (q *Queue) Discard(cs ...poolindex.Candidate) {
	q.answer(cs, func() { q.index.Discard(cs...) })
}

// answer says what became of candidates. What the feed has said of them in the
// meantime may make them available again.
func (q *Queue) answer(cs []poolindex.Candidate, say func()) {
	if len(cs) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	say()
	if len(q.lines) == 0 {
		return
	}
	for i, c := range cs {
		if i == 0 || c.Pool != cs[i-1].Pool {
			q.signal(c.Pool)
		}
	}
}

// Stocked implements poolindex.Listener.
func (q *Queue) Stocked(p poolindex.Pool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.index.Available(p) == 1 && len(q.lines[p]) > 0 {
		q.lines[p][0].couldSince = time.Time{} // there was nothing that it could have had
	}
	q.signal(p)
}

// Tick wakes who could have something, or may now because others let it pass. It is
// to be called now and then, as the passing of time tells nobody.
func (q *Queue) Tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for p, line := range q.lines {
		if q.index.Available(p) == 0 {
			for _, w := range line {
				if q.stock(w.Sources) == 0 {
					w.couldSince = time.Time{}
				}
			}
		}
		q.signal(p)
	}
}

// signal wakes the first in line of each pool that can be served; q.mu is held.
func (q *Queue) signal(pools ...poolindex.Pool) {
	known := served{}
	for _, p := range pools {
		if len(q.lines[p]) == 0 || q.index.Available(p) == 0 {
			continue
		}
		for _, w := range q.lines[p] {
			stock := q.stock(q.open(w, known))
			if stock > 0 && (!w.AtOnce || stock >= w.Need) {
				if w.couldSince.IsZero() {
					w.couldSince = q.clock.Now()
				}
				w.wake()
			} else {
				w.couldSince = time.Time{}
				if w.AtOnce && w.gatherSince.IsZero() {
					w.gatherSince = q.clock.Now()
				}
			}
			if q.keeps(w, known) {
				break // what is left is for the next when this one has taken
			}
		}
	}
}

// drop takes w out of all lines; q.mu is held.
func (q *Queue) drop(w *Waiter) {
	for _, p := range w.lines() {
		line := slices.DeleteFunc(q.lines[p], func(other *Waiter) bool { return other == w })
		if len(line) == 0 {
			delete(q.lines, p)
			continue
		}
		q.lines[p] = line
	}
}

// Demand is what claims wait for.
type Demand struct{ Claims, Sandboxes int }

// Demands returns what claims in line wait for, by pool. A claim that several pools
// may serve is in the demand of each.
func (q *Queue) Demands() map[poolindex.Pool]Demand {
	q.mu.Lock()
	defer q.mu.Unlock()
	demands := make(map[poolindex.Pool]Demand, len(q.lines))
	for p, line := range q.lines {
		d := Demand{Claims: len(line)}
		for _, w := range line {
			d.Sandboxes += w.Need
		}
		demands[p] = d
	}
	return demands
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

// Stock is how much the pools have, also for those who wait.
func (q *Queue) Stock(sources []Source) int { return q.stock(sources) }

// Before returns the UIDs of up to n claims for which stock of the pools is kept from
// newcomers.
func (q *Queue) Before(sources []Source, n int) []types.UID {
	q.mu.Lock()
	defer q.mu.Unlock()
	var uids []types.UID
	for _, s := range sources {
		if q.index.Available(s.Pool) == 0 || !q.kept(s) {
			continue
		}
		for _, w := range q.lines[s.Pool] {
			if len(uids) < n && !slices.Contains(uids, w.uid) {
				uids = append(uids, w.uid)
			}
		}
	}
	return uids
}
