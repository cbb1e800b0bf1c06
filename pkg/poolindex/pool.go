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
	if pl := x.pools[p]; pl != nil && pl.available == 0 && pl.current == "" {
		delete(x.pools, p)
	}
}

func (x *Index) enqueue(e *entry) { x.push(e, false) }

func (x *Index) push(e *entry, front bool) {
	pl := x.pool(e.Pool)
	r := pl.revisions[e.Revision]
	if r == nil {
		r = &revision{queue: list.New(), rank: pl.nextRank()}
		pl.revisions[e.Revision] = r
	}
	e.state = available
	if front {
		e.element = r.queue.PushFront(e)
	} else {
		e.element = r.queue.PushBack(e)
	}
	pl.available++
}

func (x *Index) dequeue(e *entry) {
	pl := x.pools[e.Pool]
	r := pl.revisions[e.Revision]
	r.queue.Remove(e.element)
	e.element = nil
	pl.available--
	if r.queue.Len() == 0 {
		delete(pl.revisions, e.Revision)
	}
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
