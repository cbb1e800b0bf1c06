// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"cmp"
	"container/list"
	"slices"
)

// pool queues the available sandboxes of one Pool by their revisions.
type pool struct {
	current   string               // the revision to take first
	revisions map[string]*revision // none of them is empty
	// How many sandboxes can be taken, are of suspended revisions, and are taken.
	available, suspended, taken int
}

// empty reports whether there is nothing to know about the pool.
func (pl *pool) empty() bool {
	return len(pl.revisions)+pl.taken == 0 && pl.current == ""
}

// enqueue queues an entry, as the next one of its revision or as the last, and
// reports whether it can be taken.
func (pl *pool) enqueue(e *entry, preferred, next bool) bool {
	r := pl.revisions[e.Revision]
	if r == nil {
		r = &revision{preferred: list.New(), others: list.New(), rank: pl.nextRank()}
		pl.revisions[e.Revision] = r
	}
	r.put(e, preferred, next)
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

// newest returns the revision to take from; something of the pool must be
// available.
func (pl *pool) newest() *revision {
	if r := pl.revisions[pl.current]; r != nil && !r.suspended {
		return r
	}
	return slices.MaxFunc(pl.takable(), byRank)
}

// byAge returns the revisions in the order in which Take empties them.
func (pl *pool) byAge() []*revision {
	all := pl.takable()
	slices.SortFunc(all, func(a, b *revision) int {
		current := pl.revisions[pl.current]
		switch {
		case a == current:
			return -1
		case b == current:
			return 1
		}
		return byRank(b, a)
	})
	return all
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

// revision queues the available sandboxes of one template revision, those that
// this server prefers apart from those that other servers do.
type revision struct {
	preferred *list.List // taken from the front: the one that waited longest
	others    *list.List // taken from the back: far from where their server takes
	// rank grows with every revision that appears in a pool.
	rank uint64
	// suspended revisions keep their sandboxes: see suspensions.
	suspended bool
}

func byRank(a, b *revision) int { return cmp.Compare(a.rank, b.rank) }

func (r *revision) len() int { return r.preferred.Len() + r.others.Len() }

// put queues an entry, as the next one of its kind or as the last. Of the others,
// the last to come is the next to be taken.
func (r *revision) put(e *entry, preferred, next bool) {
	e.queue = r.others
	if preferred {
		e.queue = r.preferred
	}
	if next && preferred {
		e.element = e.queue.PushFront(e)
	} else {
		e.element = e.queue.PushBack(e)
	}
}

func (r *revision) remove(e *entry) {
	e.queue.Remove(e.element)
	e.queue, e.element = nil, nil
}

// next returns the entry to take; the revision must not be empty.
func (r *revision) next() *entry {
	el := r.preferred.Front()
	if el == nil {
		el = r.others.Back()
	}
	return el.Value.(*entry)
}

// peek appends the candidates that are next to be taken, until there are n in all.
func (r *revision) peek(peeked []Candidate, n int) []Candidate {
	for el := r.preferred.Front(); el != nil && len(peeked) < n; el = el.Next() {
		peeked = append(peeked, el.Value.(*entry).Candidate)
	}
	for el := r.others.Back(); el != nil && len(peeked) < n; el = el.Prev() {
		peeked = append(peeked, el.Value.(*entry).Candidate)
	}
	return peeked
}

// sort queues all entries anew, by whether this server prefers them.
func (r *revision) sort(prefers func(*entry) bool) {
	var all []*entry
	for _, queue := range []*list.List{r.preferred, r.others} {
		for el := queue.Front(); el != nil; el = el.Next() {
			all = append(all, el.Value.(*entry))
		}
		queue.Init()
	}
	for _, e := range all {
		r.put(e, prefers(e), false)
	}
}
