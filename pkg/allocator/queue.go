// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// queue serves the claims that wait for a pool in the order of their tickets,
// and keeps newcomers from overtaking them. All candidates are taken through
// it. Nothing polls: whatever comes into the index is dealt out at once.
//
// A claim that several pools may serve stands in the line of each, and takes from
// whichever comes to it first. One that needs all at once adds up what the pools
// have for which nobody stands before it, and holds up each of these lines until
// that is enough.
//
// Worked example: b needs 3 at once, of the pools x and y, and came after a, which
// needs 2 of y at once. x gets 3: b is served from x alone. Had x got 2 and y 1, b
// would have to wait, because that one is kept for a; once y has 3, a takes 2, and b
// the third, with both of x.
type queue struct {
	index *poolindex.Index

	mu sync.Mutex
	// waiting are the lines, each in the order of its tickets. Who waits for no pool
	// yet stands in that of the pool without a name, which never has anything.
	waiting map[poolindex.Pool][]*waiter
}

// waiter is one claim's place in the queue.
type waiter struct {
	ticket ticket
	// wake is sent to, without blocking, when something was dealt.
	wake chan<- struct{}

	// Guarded by queue.mu from here on. A waiter is in line while need is above 0.
	demanded
	dealt []poolindex.Candidate
}

// demanded is what a waiter waits for.
type demanded struct {
	need int
	// sources are the pools that may serve it.
	sources []source
	// atomic: what is needed comes at once or not at all.
	atomic bool
	// yields: others may be served before this one, because the pools are not
	// meant to ever hold as much as it needs at once.
	yields bool
}

// ticket orders the claims that wait: by when they came, on whatever server,
// and after that by UID, so that no two are equal.
type ticket struct {
	since time.Time
	uid   types.UID
}

func (t ticket) compare(other ticket) int {
	return cmp.Or(t.since.Compare(other.since), cmp.Compare(t.uid, other.uid))
}

func newQueue(index *poolindex.Index) *queue {
	return &queue{index: index, waiting: map[poolindex.Pool][]*waiter{}}
}

// take hands out up to n candidates to a newcomer, from the pools that it prefers
// first: none while others wait for them. With atomic it hands out n or none.
func (q *queue) take(from []source, n int, atomic bool) []poolindex.Candidate {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeFrom(q.unspoken(from), n, atomic)
}

// takeFrom takes up to n candidates, or with atomic n or none; q.mu is held.
func (q *queue) takeFrom(from []source, n int, atomic bool) []poolindex.Candidate {
	if atomic && q.stock(from) < n {
		return nil
	}
	var taken []poolindex.Candidate
	for _, s := range byStock(from, q.index.Available) {
		if more := q.index.Take(s.pool, n-len(taken)); taken == nil {
			taken = more // the usual case: all of one pool
		} else {
			taken = append(taken, more...)
		}
		if len(taken) >= n {
			return taken
		}
	}
	if atomic { // the feed took some away in between
		q.index.Release(taken)
		return nil
	}
	return taken
}

// peek returns what take would hand out, and takes nothing.
func (q *queue) peek(from []source, n int) []poolindex.Candidate {
	q.mu.Lock()
	defer q.mu.Unlock()
	var peeked []poolindex.Candidate
	for _, s := range byStock(q.unspoken(from), q.index.Available) {
		peeked = append(peeked, q.index.Peek(s.pool, n-len(peeked))...)
	}
	return peeked
}

// stock is how much the pools have together.
func (q *queue) stock(of []source) int {
	total := 0
	for _, s := range of {
		total += q.index.Available(s.pool)
	}
	return total
}

// unspoken returns the sources for which nobody waits; q.mu is held.
func (q *queue) unspoken(sources []source) []source {
	if len(q.waiting) == 0 || !slices.ContainsFunc(sources, func(s source) bool { return q.spokenFor(s.pool) }) {
		return sources
	}
	return slices.DeleteFunc(slices.Clone(sources), func(s source) bool { return q.spokenFor(s.pool) })
}

// spokenFor says whether somebody waits for what the pool has, other than those
// who yield because it is too little for them; q.mu is held.
func (q *queue) spokenFor(p poolindex.Pool) bool {
	return slices.ContainsFunc(q.waiting[p], func(w *waiter) bool {
		return !w.atomic || !w.yields || w.need <= q.stock(q.open(w))
	})
}

// open returns the pools of w in whose lines nobody stands before it who lets nobody
// pass; q.mu is held.
func (q *queue) open(w *waiter) []source {
	if len(w.sources) < 2 {
		return w.sources
	}
	return slices.DeleteFunc(slices.Clone(w.sources), func(s source) bool { return q.isBefore(s.pool, w) })
}

// need says what w wants, in all, counting what was dealt to it and is not yet
// collected, and puts it in line, or takes it out, accordingly.
func (q *queue) need(w *waiter, wants demanded) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := w.lines()
	wants.need = max(0, wants.need-len(w.dealt))
	if w.need > 0 && (wants.need == 0 || !slices.Equal(before, wants.lines())) {
		q.drop(w)
	}
	wasIn := w.need > 0
	w.demanded = wants
	if w.need > 0 && !wasIn {
		for _, p := range w.lines() {
			line := q.waiting[p]
			at, _ := slices.BinarySearchFunc(line, w, func(a, b *waiter) int { return a.ticket.compare(b.ticket) })
			q.waiting[p] = slices.Insert(line, at, w)
		}
	}
	q.deal(append(before, w.lines()...)...)
}

// lines are the pools in whose lines a waiter stands while it needs something.
func (d *demanded) lines() []poolindex.Pool {
	if len(d.sources) == 0 {
		return []poolindex.Pool{{}}
	}
	lines := make([]poolindex.Pool, 0, len(d.sources))
	for _, s := range d.sources {
		lines = append(lines, s.pool)
	}
	return lines
}

// inLine says whether w waits for candidates.
func (q *queue) inLine(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.need > 0
}

// collect returns what was dealt to w since the last time.
func (q *queue) collect(w *waiter) []poolindex.Candidate {
	q.mu.Lock()
	defer q.mu.Unlock()
	dealt := w.dealt
	w.dealt = nil
	return dealt
}

// leave takes w out of line and gives back what it has not collected.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	back := w.dealt
	w.dealt = nil
	if len(back) > 0 {
		q.index.Release(back)
	}
	if w.need > 0 {
		q.drop(w)
		q.deal(w.lines()...)
	}
	q.dealAll(back)
}

// release puts candidates back into the index, for whoever is next.
func (q *queue) release(cs []poolindex.Candidate) {
	if len(cs) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.index.Release(cs)
	q.dealAll(cs)
}

// bound says that candidates were claimed at resourceVersion.
func (q *queue) bound(cs []poolindex.Candidate, resourceVersion uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.index.Bound(cs, resourceVersion)
	q.dealAll(cs)
}

// discard says that candidates turned out to have moved.
func (q *queue) discard(cs ...poolindex.Candidate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.index.Discard(cs...)
	q.dealAll(cs)
}

// dealAll deals, after candidates were answered for, what the feed has said of
// them in the meantime: they may be available again. q.mu is held.
func (q *queue) dealAll(cs []poolindex.Candidate) {
	if len(q.waiting) == 0 {
		return
	}
	for i, c := range cs {
		if i == 0 || c.Pool != cs[i-1].Pool {
			q.deal(c.Pool)
		}
	}
}

// Stocked implements poolindex.Listener.
func (q *queue) Stocked(p poolindex.Pool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deal(p)
}

// deal gives the stock of pools to those in line; q.mu is held. Who is served, or
// leaves, no longer holds up its other lines, so these are dealt as well.
func (q *queue) deal(pools ...poolindex.Pool) {
	for len(pools) > 0 {
		p := pools[0]
		pools = pools[1:]
		for i := 0; i < len(q.waiting[p]); {
			w := q.waiting[p][i]
			if q.index.Available(p) == 0 {
				break
			}
			enough := q.serve(w)
			switch {
			case enough: // it is out of line, and the next stands where it stood
				if len(w.sources) > 1 {
					pools = append(pools, w.lines()...)
				}
			case w.atomic && w.yields:
				i++
			default:
				i = len(q.waiting[p]) // what p has left is w's
			}
		}
	}
}

// serve gives w what the pools have for it, and says whether that is all it needs;
// q.mu is held.
func (q *queue) serve(w *waiter) bool {
	dealt := q.takeFrom(q.open(w), w.need, w.atomic)
	if len(dealt) == 0 {
		return false
	}
	w.dealt = append(w.dealt, dealt...)
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
	if len(dealt) < w.need {
		w.need -= len(dealt)
		return false
	}
	q.drop(w)
	w.need = 0
	return true
}

// isBefore says whether somebody stands before w in the line of a pool who lets
// nobody pass; q.mu is held.
func (q *queue) isBefore(p poolindex.Pool, w *waiter) bool {
	for _, other := range q.waiting[p] {
		if other == w {
			return false
		}
		if !other.atomic || !other.yields {
			return true
		}
	}
	return false
}

// drop takes w out of all lines; q.mu is held.
func (q *queue) drop(w *waiter) {
	for _, p := range w.lines() {
		line := slices.DeleteFunc(q.waiting[p], func(other *waiter) bool { return other == w })
		if len(line) == 0 {
			delete(q.waiting, p)
			continue
		}
		q.waiting[p] = line
	}
	w.need = 0
}
