// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"cmp"
	"container/list"
)

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
