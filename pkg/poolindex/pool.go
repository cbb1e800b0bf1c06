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
	if pl := x.pools[p]; pl != nil && pl.available+pl.taken == 0 && pl.current == "" {
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
	pl.available++
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
	pl.available--
	if r := pl.revisions[e.Revision]; r.preferred.Len()+r.others.Len() == 0 {
		delete(pl.revisions, e.Revision)
	}
}

// next returns the entry to take; the revision must not be empty.
func (r *revision) next() *entry {
	el := r.preferred.Front()
	if el == nil {
		el = r.others.Back()
	}
	return el.Value.(*entry)
}

// newest returns the revision to take from; the pool must not be empty.
func (pl *pool) newest() *revision {
	if r := pl.revisions[pl.current]; r != nil {
		return r
	}
	return slices.MaxFunc(pl.all(), byRank)
}

// byAge returns the revisions in the order in which Take empties them.
func (pl *pool) byAge() []*revision {
	all := pl.all()
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

// all returns the revisions in no order. There are as many as a roll-out has
// left behind: hardly ever more than two.
func (pl *pool) all() []*revision {
	all := make([]*revision, 0, len(pl.revisions))
	for _, r := range pl.revisions {
		all = append(all, r)
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

func byRank(a, b *revision) int { return cmp.Compare(a.rank, b.rank) }
