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
type queue struct {
	index *poolindex.Index

	mu      sync.Mutex
	waiting map[poolindex.Pool][]*waiter // in the order of their tickets
}

// waiter is one claim's place in the queue of one pool.
type waiter struct {
	pool   poolindex.Pool
	ticket ticket
	// atomic: what is needed comes at once or not at all.
	atomic bool
	// wake is sent to, without blocking, when something was dealt.
	wake chan<- struct{}

	// Guarded by queue.mu from here on. A waiter is in line while need is above 0.
	need int
	// yields: others may be served before this one, because the pool is not
	// meant to ever hold as much as it needs at once.
	yields bool
	dealt  []poolindex.Candidate
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

// take hands out up to n candidates to a newcomer: none while others wait for
// them. With atomic it hands out n or none.
func (q *queue) take(p poolindex.Pool, n int, atomic bool) []poolindex.Candidate {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.spokenFor(p) || atomic && q.index.Available(p) < n {
		return nil
	}
	taken := q.index.Take(p, n)
	if atomic && len(taken) < n { // the feed took some away in between
		q.index.Release(taken)
		return nil
	}
	return taken
}

// need says that w wants n candidates in all, counting those dealt to it and not
// yet collected, and puts it in line, or takes it out, accordingly.
func (q *queue) need(w *waiter, n int, yields bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.yields = yields
	w.need = max(0, n-len(w.dealt))
	line := q.waiting[w.pool]
	at, inLine := slices.BinarySearchFunc(line, w, func(a, b *waiter) int { return a.ticket.compare(b.ticket) })
	switch {
	case w.need == 0 && inLine:
		q.drop(w)
	case w.need > 0 && !inLine:
		q.waiting[w.pool] = slices.Insert(line, at, w)
	}
	q.deal(w.pool)
}

// peek returns what take would hand out, and takes nothing.
func (q *queue) peek(p poolindex.Pool, n int) []poolindex.Candidate {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.spokenFor(p) {
		return nil
	}
	return q.index.Peek(p, n)
}

// spokenFor says whether somebody waits for what the pool has, other than those
// who yield because it is too little for them; q.mu is held.
func (q *queue) spokenFor(p poolindex.Pool) bool {
	return slices.ContainsFunc(q.waiting[p], func(w *waiter) bool {
		return !w.atomic || !w.yields || w.need <= q.index.Available(p)
	})
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
	q.drop(w)
	if len(w.dealt) > 0 {
		q.index.Release(w.dealt)
		w.dealt = nil
	}
	q.deal(w.pool)
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
	for _, c := range cs {
		q.deal(c.Pool)
	}
}

// Stocked implements poolindex.Listener.
func (q *queue) Stocked(p poolindex.Pool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deal(p)
}

// deal gives the pool's stock to those in line; q.mu is held.
func (q *queue) deal(p poolindex.Pool) {
	for i := 0; i < len(q.waiting[p]); {
		w := q.waiting[p][i]
		stock := q.index.Available(p)
		if stock == 0 {
			return
		}
		if w.atomic && stock < w.need {
			if w.yields {
				i++
				continue
			}
			return
		}
		dealt := q.index.Take(p, w.need)
		if w.atomic && len(dealt) < w.need {
			q.index.Release(dealt)
			return
		}
		w.dealt = append(w.dealt, dealt...)
		w.need -= len(dealt)
		select {
		case w.wake <- struct{}{}:
		default: // it is awake already
		}
		if w.need > 0 {
			return
		}
		q.drop(w)
	}
}

func (q *queue) drop(w *waiter) {
	line := slices.DeleteFunc(q.waiting[w.pool], func(other *waiter) bool { return other == w })
	if len(line) == 0 {
		delete(q.waiting, w.pool)
		return
	}
	q.waiting[w.pool] = line
}
