// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue keeps the claims that wait for sandboxes in lines, one for each pool,
// in the order in which they came. All sandboxes are taken from the index through it.
// It deals nothing out: it wakes the claim that is first, which takes for itself, and
// it keeps newcomers from overtaking.
//
// A claim that several pools may serve stands in the line of each, and takes from
// whichever it is first in. One that needs all its sandboxes at once adds up what the
// pools have in whose lines no other stands before it, and holds up each of these lines
// until that is enough.
//
// Worked example: b needs 3 at once, of the pools x and y, and came after a, which
// needs 2 of y at once. x gets 3: b is served from x alone. Had x got 2 and y 1, b
// would have to wait, because that one is kept for a; once y has 3, a takes 2, and b
// the third, with both of x.
package queue

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// Queue is the lines of all pools of an index. It is safe for concurrent use.
type Queue struct {
	index *poolindex.Index

	mu    sync.Mutex
	lines lines
}

// New returns a queue before an index.
func New(index *poolindex.Index, c clock.PassiveClock) *Queue {
	return &Queue{index: index, lines: lines{index: index, clock: c, byPool: map[poolindex.Pool][]*Waiter{}}}
}

// Wait says what a waiter wants from now on, and puts it in line, or takes it out,
// accordingly. It does not wake the waiter itself: who calls it takes what there is now,
// or has just done so.
func (q *Queue) Wait(w *Waiter, wants Wants) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wants.Need = max(0, wants.Need)
	before, after := w.lines(), wants.lines()
	stays := slices.Equal(before, after)
	if !stays {
		q.lines.drop(w)
	}
	if !stays || wants.Need < w.Need { // another server may have taken for it
		w.couldSince = time.Time{}
	}
	if len(before) == 0 || len(after) == 0 || wants.Need < w.Need {
		w.gatherSince = time.Time{} // and not by changing lines
	}
	w.Wants = wants
	if !stays {
		for _, p := range after {
			at, _ := slices.BinarySearchFunc(q.lines.byPool[p], w, (*Waiter).compare)
			q.lines.byPool[p] = slices.Insert(q.lines.byPool[p], at, w)
		}
	}
	q.lines.signal(w, append(before, after...)...)
}

// Leave takes a waiter out of line.
func (q *Queue) Leave(w *Waiter) { q.Wait(w, Wants{}) }

// Take hands out up to n sandboxes, or with atOnce n or none, those of the preferred
// pools first: to a waiter what none before it in line waits for, and to a newcomer,
// which is nil, what none waits for. What a waiter takes it no longer needs.
func (q *Queue) Take(w *Waiter, sources []Source, n int, atOnce bool) []poolindex.Candidate {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w == nil {
		return q.lines.take(q.lines.unclaimed(sources), n, atOnce)
	}
	taken := q.lines.take(q.lines.open(w, served{}, poolindex.Pool{}), n, atOnce)
	w.couldSince = time.Time{}
	if len(taken) > 0 {
		w.gatherSince = time.Time{}
		left := w.Wants
		left.Need = max(0, w.Need-len(taken))
		lines := w.lines()
		if left.Need == 0 {
			q.lines.drop(w)
		}
		w.Wants = left
		q.lines.signal(nil, lines...)
	}
	return taken
}

// Peek returns what Take would hand out to a newcomer, and takes nothing.
func (q *Queue) Peek(sources []Source, n int) []poolindex.Candidate {
	q.mu.Lock()
	defer q.mu.Unlock()
	var peeked []poolindex.Candidate
	for _, s := range byStock(q.lines.unclaimed(sources), q.index.Available) {
		peeked = append(peeked, q.index.Peek(s.Pool, n-len(peeked))...)
	}
	return peeked
}

// Free is how much of the pools a newcomer could take.
func (q *Queue) Free(sources []Source) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lines.stock(q.lines.unclaimed(sources))
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
	if len(q.lines.byPool) == 0 {
		return
	}
	for i, c := range cs {
		if i == 0 || c.Pool != cs[i-1].Pool {
			q.lines.signal(nil, c.Pool)
		}
	}
}

// Stocked implements poolindex.Listener.
func (q *Queue) Stocked(p poolindex.Pool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.index.Available(p) == 1 && len(q.lines.byPool[p]) > 0 {
		q.lines.byPool[p][0].couldSince = time.Time{} // there was nothing that it could have had
	}
	q.lines.signal(nil, p)
}

// Tick wakes who could have something, or may now because others let it pass. It is
// to be called now and then, because time passes without an event.
func (q *Queue) Tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for p := range q.lines.byPool {
		q.lines.settle(p)
		q.lines.signal(nil, p)
	}
}

// Demand is what claims wait for.
type Demand struct{ Claims, Sandboxes int }

// Demands returns what those claims in line wait for of which counts holds, by pool. A
// claim that several pools may serve is in the demand of each.
func (q *Queue) Demands(counts func(types.UID) bool) map[poolindex.Pool]Demand {
	q.mu.Lock()
	defer q.mu.Unlock()
	demands := make(map[poolindex.Pool]Demand, len(q.lines.byPool))
	for p, line := range q.lines.byPool {
		d := demands[p]
		for _, w := range line {
			if counts(w.uid) {
				d.Claims++
				d.Sandboxes += w.Need
			}
		}
		demands[p] = d
	}
	return demands
}

// Stock is how much the pools have, also for those who wait.
func (q *Queue) Stock(sources []Source) int { return q.lines.stock(sources) }

// Before returns the UIDs of up to n claims for which stock of the pools is kept from
// newcomers.
func (q *Queue) Before(sources []Source, n int) []types.UID {
	q.mu.Lock()
	defer q.mu.Unlock()
	var uids []types.UID
	for _, s := range sources {
		if q.index.Available(s.Pool) == 0 || !q.lines.kept(s) {
			continue
		}
		for _, w := range q.lines.byPool[s.Pool] {
			if len(uids) < n && !slices.Contains(uids, w.uid) {
				uids = append(uids, w.uid)
			}
		}
	}
	return uids
}
