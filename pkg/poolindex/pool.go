// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"cmp"
	"container/list"
	"slices"
)

// pool returns the pool p, made if it is new.
func (x *Index) pool(p Pool) *pool {
	pl := x.pools[p]
	if pl == nil {
		pl = &pool{revisions: map[string]*revision{}}
		x.pools[p] = pl
	}
	return pl
}

// dropPoolIfEmpty keeps deleted pools from piling up.
func (x *Index) dropPoolIfEmpty(p Pool) {
	if pl := x.pools[p]; pl != nil && len(pl.revisions)+pl.taken == 0 && pl.current == "" {
		delete(x.pools, p)
	}
}

func (x *Index) enqueue(e *entry) { x.push(e, false) }

// push makes an entry available, as the next one of its kind or as the last.
func (x *Index) push(e *entry, next bool) {
	pl := x.pool(e.Pool)
	r := pl.revisions[e.Revision]
	if r == nil {
		r = &revision{preferred: list.New(), others: list.New(), rank: pl.nextRank()}
		pl.revisions[e.Revision] = r
	}
	e.state = available
	x.put(r, e, next)
	if !r.suspended {
		pl.available++
	}
}

// put queues an entry where it belongs. Of the others, the last to come is the
// next to be taken.
func (x *Index) put(r *revision, e *entry, next bool) {
	preferred := x.prefers == nil || x.prefers(e.Pool.Namespace, e.Name)
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

// sort queues all entries of a revision anew.
func (x *Index) sort(r *revision) {
	var all []*entry
	for _, queue := range []*list.List{r.preferred, r.others} {
		for el := queue.Front(); el != nil; el = el.Next() {
			all = append(all, el.Value.(*entry))
		}
		queue.Init()
	}
	for _, e := range all {
		x.put(r, e, false)
	}
}

func (x *Index) dequeue(e *entry) {
	pl := x.pools[e.Pool]
	e.queue.Remove(e.element)
	e.queue, e.element = nil, nil
	r := pl.revisions[e.Revision]
	if !r.suspended {
		pl.available--
	}
	if r.len() == 0 {
		delete(pl.revisions, e.Revision)
		if r.suspended {
			x.suspended--
		}
	}
}

// len is the number of entries of the revision.
func (r *revision) len() int { return r.preferred.Len() + r.others.Len() }

// next returns the entry to take; the revision must not be empty.
func (r *revision) next() *entry {
	el := r.preferred.Front()
	if el == nil {
		el = r.others.Back()
	}
	return el.Value.(*entry)
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

// Resumes counts the calls of Resume. It is to be read before it is found out
// whether a revision is of use, for Suspend.
func (x *Index) Resumes() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.resumed
}

// Suspend keeps the available sandboxes of a revision from being taken or counted,
// because what they are made from cannot be found, until Resume. It does nothing
// and returns false if there was a Resume since the count asOf.
func (x *Index) Suspend(p Pool, revisionName string, asOf uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.resumed != asOf {
		return false
	}
	pl := x.pools[p]
	if pl == nil {
		return true
	}
	if r := pl.revisions[revisionName]; r != nil && !r.suspended {
		r.suspended = true
		x.suspended++
		pl.available -= r.len()
	}
	return true
}

// Resume lets the suspended revisions of all pools for which of holds be taken
// again, and returns the pools that had one.
func (x *Index) Resume(of func(Pool) bool) []Pool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.resumed++
	if x.suspended == 0 {
		return nil // the usual case
	}
	var pools []Pool
	for p, pl := range x.pools {
		had := false
		for _, r := range pl.revisions {
			if r.suspended && of(p) {
				r.suspended, had = false, true
				x.suspended--
				pl.available += r.len()
			}
		}
		if had {
			pools = append(pools, p)
		}
	}
	return pools
}

// Suspended reports whether something of a pool is suspended.
func (x *Index) Suspended(p Pool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if pl := x.pools[p]; pl != nil && x.suspended > 0 {
		for _, r := range pl.revisions {
			if r.suspended {
				return true
			}
		}
	}
	return false
}

func (pl *pool) nextRank() uint64 {
	var highest uint64
	for _, r := range pl.revisions {
		highest = max(highest, r.rank)
	}
	return highest + 1
}

func byRank(a, b *revision) int { return cmp.Compare(a.rank, b.rank) }
