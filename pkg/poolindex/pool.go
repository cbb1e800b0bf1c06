// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"cmp"
	"container/list"
	"slices"
)

// pool has the available sandboxes of one Pool, by their revisions.
type pool struct {
	target    string               // the revision to take first
	revisions map[string]*revision // none of them is empty
	// How many sandboxes can be taken, are of suspended revisions, and are taken.
	available, suspended, taken int
}

// empty reports whether there is nothing to know about the pool.
func (pl *pool) empty() bool {
	return len(pl.revisions)+pl.taken == 0 && pl.target == ""
}

// enqueue queues an entry in its place, as the next one there or as the last, and
// reports whether it can be taken.
func (pl *pool) enqueue(e *entry, to place, next bool) bool {
	r := pl.revisions[e.Revision]
	if r == nil {
		r = &revision{rank: pl.nextRank()}
		pl.revisions[e.Revision] = r
	}
	r.put(e, to, next)
	pl.count(r, 1)
	return !r.suspended
}

// dequeue takes an entry out of its queue, and reports whether it could be taken.
func (pl *pool) dequeue(e *entry) bool {
	r := pl.revisions[e.Revision]
	r.remove(e)
	pl.count(r, -1)
	if r.len() == 0 {
		delete(pl.revisions, e.Revision)
	}
	return !r.suspended
}

// move queues an entry anew, in another place of its revision.
func (pl *pool) move(e *entry, to place) {
	r := pl.revisions[e.Revision]
	r.remove(e)
	r.put(e, to, false)
}

// count adds n to the number of sandboxes that r is counted in.
func (pl *pool) count(r *revision, n int) {
	if r.suspended {
		pl.suspended += n
	} else {
		pl.available += n
	}
}

// suspend keeps the sandboxes of a revision from being taken and counted.
func (pl *pool) suspend(revisionName string) {
	if r := pl.revisions[revisionName]; r != nil && !r.suspended {
		r.suspended = true
		pl.available -= r.len()
		pl.suspended += r.len()
	}
}

// resume lets the sandboxes of all revisions be taken again.
func (pl *pool) resume() {
	for _, r := range pl.revisions {
		r.suspended = false
	}
	pl.available, pl.suspended = pl.available+pl.suspended, 0
}

// nextRevision returns the revision to take from next: the target, and then the newest. Something
// of the pool must be available. A revision that has only avoided sandboxes comes after all others.
func (pl *pool) nextRevision() *revision {
	if r := pl.revisions[pl.target]; r != nil && !r.suspended && r.regular.len() > 0 {
		return r
	}
	return slices.MaxFunc(pl.takable(), func(a, b *revision) int {
		return cmp.Or(cmp.Compare(min(a.regular.len(), 1), min(b.regular.len(), 1)), pl.byAge(a, b))
	})
}

// byAge compares revisions: the newer is greater, and the target is the newest.
func (pl *pool) byAge(a, b *revision) int {
	switch pl.revisions[pl.target] {
	case a:
		return 1
	case b:
		return -1
	}
	return cmp.Compare(a.rank, b.rank)
}

// peek appends the candidates that are next to be taken of the regular or the avoided
// ones, until there are n in all.
func (pl *pool) peek(peeked []Candidate, n int, avoided bool) []Candidate {
	all := pl.takable()
	slices.SortFunc(all, func(a, b *revision) int { return pl.byAge(b, a) })
	for _, r := range all {
		peeked = r.of(avoided).peek(peeked, n)
	}
	return peeked
}

// takable returns the revisions that are not suspended, in no order. There are as
// many as a roll-out has left behind: hardly ever more than two.
func (pl *pool) takable() []*revision {
	all := make([]*revision, 0, len(pl.revisions))
	for _, r := range pl.revisions {
		if !r.suspended {
			all = append(all, r)
		}
	}
	return all
}

func (pl *pool) nextRank() uint64 {
	var highest uint64
	for _, r := range pl.revisions {
		highest = max(highest, r.rank)
	}
	return highest + 1
}

// place is where an entry is queued.
type place struct {
	preferred bool // by this server
	avoided   bool // taken when the pool has no others
}

// revision queues the available sandboxes of one template revision.
type revision struct {
	regular queues
	// avoided are on nodes that take no pods, see nodes.
	avoided queues
	// rank grows with every revision that appears in a pool.
	rank uint64
	// suspended revisions keep their sandboxes: see suspensions.
	suspended bool
}

func (r *revision) len() int { return r.regular.len() + r.avoided.len() }

// of returns the queues of the regular or the avoided sandboxes.
func (r *revision) of(avoided bool) *queues {
	if avoided {
		return &r.avoided
	}
	return &r.regular
}

// put queues an entry, as the next one of its place or as the last.
func (r *revision) put(e *entry, to place, next bool) {
	e.avoided = to.avoided
	r.of(to.avoided).put(e, to.preferred, next)
}

func (r *revision) remove(e *entry) {
	e.queue.Remove(e.element)
	e.queue, e.element = nil, nil
}

// next returns the entry to take; the revision must not be empty.
func (r *revision) next() *entry { return r.of(r.regular.len() == 0).next() }

// sort queues all entries anew, each in its place.
func (r *revision) sort(placeOf func(*entry) place) {
	for _, e := range append(r.regular.clear(), r.avoided.clear()...) {
		r.put(e, placeOf(e), false)
	}
}

// queues are sandboxes, those that this server prefers apart from those that other
// servers do.
type queues struct {
	preferred list.List // taken from the front: the one that waited longest
	others    list.List // taken from the back: far from where their server takes
}

func (q *queues) len() int { return q.preferred.Len() + q.others.Len() }

// put queues an entry, as the next one of its kind or as the last. Of the others,
// the last to come is the next to be taken.
func (q *queues) put(e *entry, preferred, next bool) {
	e.queue = &q.others
	if preferred {
		e.queue = &q.preferred
	}
	if next && preferred {
		e.element = e.queue.PushFront(e)
	} else {
		e.element = e.queue.PushBack(e)
	}
}

// next returns the entry to take; there must be one.
func (q *queues) next() *entry {
	el := q.preferred.Front()
	if el == nil {
		el = q.others.Back()
	}
	return el.Value.(*entry)
}

// peek appends the candidates that are next to be taken, until there are n in all.
func (q *queues) peek(peeked []Candidate, n int) []Candidate {
	for el := q.preferred.Front(); el != nil && len(peeked) < n; el = el.Next() {
		peeked = append(peeked, el.Value.(*entry).Candidate)
	}
	for el := q.others.Back(); el != nil && len(peeked) < n; el = el.Prev() {
		peeked = append(peeked, el.Value.(*entry).Candidate)
	}
	return peeked
}

// clear empties the queues, and returns what was in them, in order.
func (q *queues) clear() []*entry {
	all := make([]*entry, 0, q.len())
	for _, queue := range []*list.List{&q.preferred, &q.others} {
		for el := queue.Front(); el != nil; el = el.Next() {
			all = append(all, el.Value.(*entry))
		}
		queue.Init()
	}
	return all
}
