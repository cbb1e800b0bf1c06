// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue keeps the claims that wait for sandboxes in lines, one for each pool.
// All sandboxes are taken from the index through it. It assigns nothing to claims: it
// wakes the claim whose turn it is, which takes for itself, and it keeps newcomers (new claims,
// which are not in a line yet) from overtaking.
//
// In a line, requesters take turns, and the claims of one requester are served in the
// order in which they came. A turn is one sandbox, or, where there is more, the
// requester's share of it; a requester that waits alone takes all.
//
// A claim that several pools may serve is in the line of each, and takes from the pools in
// whose lines it is its turn; what it gets counts in each. One that needs all its
// sandboxes at once adds up what the pools have in which it is its turn. If that is not
// enough, it gathers: the stock of these pools is kept for it, for 30 s at most. Then
// nothing is gathered in these lines for as long, so that the others have their turns;
// it is still served when there is enough.
//
// Worked example: a waits for 10,000 sandboxes of a pool and has had 300, when b comes
// for 2 and c, by the same requester as a, for 1. Of what comes from then on, one by
// one, a gets the first, because it was there before, b the next, then a, then b, and
// a all others; then comes c. If ten come at once, a may take five, b takes its 2, and
// a the other three.
//
// All servers know all claims, and decide alike from what is stored. What each
// requester has had since it began to wait is in the memory of each of them: after a
// restart all begin with the same turn.
package queue

import (
	"hash/maphash"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// shards is in how many parts the lines are, each with a lock of its own. A namespace is
// in one of them.
const shards = 64

// Queue is the lines of all pools of an index. It is safe for concurrent use.
type Queue struct {
	index  *poolindex.Index
	seed   maphash.Seed
	shards [shards]*shard
}

// New returns a queue before an index.
func New(index *poolindex.Index, c clock.PassiveClock) *Queue {
	q := &Queue{index: index, seed: maphash.MakeSeed()}
	for i := range q.shards {
		q.shards[i] = newShard(index, c)
	}
	return q
}

// shardOf returns the shard of a namespace.
func (q *Queue) shardOf(namespace string) *shard {
	return q.shards[maphash.String(q.seed, namespace)%shards]
}

// HasRoom reports whether one more claim of a requester may wait, if most is how many claims of the
// namespace may. Half of most is for any requester. Beyond that, a requester may have no more than
// its share: most, divided by one more than the number of requesters, so that there is room for the
// next one. A requester without a claim may have one, until twice as many claims as most wait.
func (q *Queue) HasRoom(namespace, requester string, most int) bool {
	sh := q.shardOf(namespace)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.waiting[namespace].hasRoom(requester, most)
}

// waitingCounts are how many claims of a namespace wait; nil is none.
type waitingCounts struct {
	all int
	of  map[string]int // by requester
}

func (c *waitingCounts) total() int {
	if c == nil {
		return 0
	}
	return c.all
}

// hasRoom is Queue.HasRoom.
func (c *waitingCounts) hasRoom(requester string, most int) bool {
	if c.total() < most/2 || c == nil {
		return true
	}
	has := c.of[requester]
	if c.all < most {
		return has < max(1, most/(len(c.of)+1))
	}
	return has == 0 && c.all/2 < most
}

// TakeFree takes for a newcomer up to n sandboxes for which no claim waits, or with atOnce n or
// none, those of the preferred pools first.
func (q *Queue) TakeFree(sources []Source, n int, atOnce bool) []poolindex.Candidate {
	if len(sources) == 0 {
		return nil
	}
	sh := q.shardOf(sources[0].Pool.Namespace)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.takeOpen(sh.openToNewcomers(sources), n, atOnce)
}

// Peek returns what TakeFree would take, and takes nothing.
func (q *Queue) Peek(sources []Source, n int) []poolindex.Candidate {
	if len(sources) == 0 {
		return nil
	}
	sh := q.shardOf(sources[0].Pool.Namespace)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var peeked []poolindex.Candidate
	free := inOrder(sh.openToNewcomers(sources))
	for _, s := range free {
		peeked = append(peeked, q.index.Peek(s.Pool, n-len(peeked), false)...)
	}
	for _, s := range free {
		peeked = append(peeked, q.index.Peek(s.Pool, n-len(peeked), true)...)
	}
	return peeked
}

// Free is how much of the pools a newcomer could take.
func (q *Queue) Free(sources []Source) int {
	if len(sources) == 0 {
		return 0
	}
	sh := q.shardOf(sources[0].Pool.Namespace)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	total := 0
	for _, s := range sh.openToNewcomers(sources) {
		total += s.available
	}
	return total
}

// Release puts candidates back into the index, for the waiter or newcomer that is
// next.
func (q *Queue) Release(cs []poolindex.Candidate) {
	q.update(cs, func() { q.index.Release(cs) })
}

// Bound records that candidates were bound at resourceVersion.
func (q *Queue) Bound(cs []poolindex.Candidate, resourceVersion uint64) {
	q.update(cs, func() { q.index.Bound(cs, resourceVersion) })
}

// Discard records that candidates turned out to have changed in the store.
func (q *Queue) Discard(cs ...poolindex.Candidate) {
	q.update(cs, func() { q.index.Discard(cs...) })
}

// update changes what the index says of candidates, which are of one claim. What the feed has reported
// of them in the meantime may make them available again.
func (q *Queue) update(cs []poolindex.Candidate, change func()) {
	if len(cs) == 0 {
		return
	}
	sh := q.shardOf(cs[0].Pool.Namespace)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	change()
	for i, c := range cs {
		if i == 0 || c.Pool != cs[i-1].Pool {
			sh.wakeNext(nil, c.Pool)
		}
	}
}

// Stocked implements poolindex.Listener.
func (q *Queue) Stocked(p poolindex.Pool) {
	sh := q.shardOf(p.Namespace)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if q.index.Available(p) == 1 {
		sh.stockedAgain(p)
	}
	sh.wakeNext(nil, p)
}

// Tick wakes the claims that can take something because time has passed, such as after a claim whose
// turn it was has not taken it. It is to be called about every second. It looks only at pools that
// have something and for which claims wait.
func (q *Queue) Tick() {
	for _, sh := range q.shards {
		sh.mu.Lock()
		sh.tick()
		sh.mu.Unlock()
	}
}

// Demand is what claims wait for.
type Demand struct{ Claims, Sandboxes int }

// Demands returns, by pool, what the claims wait for that this server works on. A
// claim that several pools may serve is in the demand of each. One that no pool may serve is
// in the demand of the pool of its namespace whose name is empty. The cost is that of the
// number of lines, and does not depend on their length.
func (q *Queue) Demands() map[poolindex.Pool]Demand {
	demands := map[poolindex.Pool]Demand{}
	for _, sh := range q.shards {
		sh.mu.Lock()
		for p, l := range sh.lines {
			if l.demand.Claims > 0 {
				demands[p] = l.demand
			}
		}
		sh.mu.Unlock()
	}
	return demands
}

// Before returns the UIDs of up to n claims for which stock of the pools is kept from
// newcomers.
func (q *Queue) Before(sources []Source, n int) []types.UID {
	if len(sources) == 0 {
		return nil
	}
	sh := q.shardOf(sources[0].Pool.Namespace)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var uids []types.UID
	add := func(w *Waiter) bool {
		if len(uids) < n && !slices.Contains(uids, w.UID) {
			uids = append(uids, w.UID)
		}
		return len(uids) < n
	}
	for _, s := range sources {
		if q.index.Available(s.Pool) == 0 || !sh.isKept(s.Pool) {
			continue
		}
		l := sh.lines[s.Pool]
		if first, _ := sh.first(l, sh.clock.Now()); first != nil {
			add(first)
		}
		for lane, seats := range l.lanes {
			seats.Ascend(func(s *seat) bool {
				if of := s.of[lane]; of != nil {
					of.Ascend(add)
				}
				return len(uids) < n
			})
		}
	}
	return uids
}
