// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"container/list"
)

// entries are the sandboxes that the index knows of, and how each goes from one state
// to the next (see Index).
type entries struct {
	byKey map[entryKey]*entry
	pools *pools // has those that are available
}

// upsert takes in that a sandbox was available at c.ResourceVersion, and reports
// whether it can now be taken from its pool and could not before.
func (es *entries) upsert(c Candidate) bool {
	e := es.byKey[c.key()]
	if e == nil {
		e = &entry{Candidate: c}
		es.byKey[c.key()] = e
		es.pools.nodes.enter(e)
		return es.pools.enqueue(e, false)
	}
	if c.ResourceVersion <= e.newestVersion() {
		return false
	}
	switch e.state {
	case available:
		return es.update(e, c)
	case taken:
		e.pending = &feedUpdate{candidate: c}
		return false
	default:
		es.setCandidate(e, c)
		return es.pools.enqueue(e, false)
	}
}

// setCandidate replaces the candidate of an entry and updates the index by node. It does not move
// the entry to another queue.
func (es *entries) setCandidate(e *entry, c Candidate) {
	if c.Node == e.Node {
		e.Candidate = c
		return
	}
	es.pools.nodes.leave(e)
	e.Candidate = c
	es.pools.nodes.enter(e)
}

// forget drops an entry that is in no queue.
func (es *entries) forget(e *entry) {
	es.pools.nodes.leave(e)
	delete(es.byKey, e.key())
}

// update is upsert for a sandbox that is available already. It keeps its place in the
// queue, if it stays in that.
func (es *entries) update(e *entry, c Candidate) bool {
	was := e.Pool
	if c.Pool == was && c.Revision == e.Revision {
		es.setCandidate(e, c)
		es.pools.move(e)
		return false
	}
	could := es.pools.dequeue(e)
	es.pools.dropIfEmpty(was)
	es.setCandidate(e, c)
	can := es.pools.enqueue(e, false)
	return can && (!could || c.Pool != was)
}

// remove takes in that a sandbox was not available at resourceVersion.
func (es *entries) remove(key entryKey, resourceVersion uint64) {
	e := es.byKey[key]
	if e == nil || resourceVersion < e.newestVersion() {
		return
	}
	switch e.state {
	case taken:
		e.pending = &feedUpdate{candidate: Candidate{ResourceVersion: resourceVersion}, gone: true}
		return
	case available:
		es.pools.dequeue(e)
		es.pools.dropIfEmpty(e.Pool)
	}
	es.forget(e)
}

// take makes an available entry taken; its pool stays.
func (es *entries) take(e *entry) Candidate {
	es.pools.dequeue(e)
	es.pools.byKey[e.Pool].taken++
	e.state = taken
	return e.Candidate
}

// spend takes in that a taken sandbox was written at resourceVersion, or at a version
// that is unknown but not older than the one at which it was taken.
func (es *entries) spend(c Candidate, resourceVersion uint64) {
	e := es.byKey[c.key()]
	if e == nil || e.state != taken {
		return
	}
	es.pools.untake(e.Pool)
	e.state = spent
	e.ResourceVersion = max(e.ResourceVersion, resourceVersion)
	n := e.pending
	e.pending = nil
	switch {
	case n == nil || n.candidate.ResourceVersion < e.ResourceVersion: // nothing newer
	case n.gone:
		es.forget(e)
	case n.candidate.ResourceVersion > e.ResourceVersion:
		es.setCandidate(e, n.candidate)
		es.pools.enqueue(e, false)
	}
}

// release makes a taken sandbox available again, as the next one to be taken, unless
// the feed has reported that it is gone.
func (es *entries) release(c Candidate) {
	e := es.byKey[c.key()]
	if e == nil || e.state != taken {
		return
	}
	n := e.pending
	e.pending = nil
	switch {
	case n != nil && n.gone:
		es.forget(e)
	case n != nil:
		es.setCandidate(e, n.candidate)
		fallthrough
	default:
		es.pools.enqueue(e, true)
	}
	es.pools.untake(c.Pool)
}

// entry is what the index knows of one sandbox.
type entry struct {
	Candidate
	state   state
	avoided bool          // whether queue is one of those that are taken last
	queue   *list.List    // while available
	element *list.Element // in queue
	pending *feedUpdate   // what the feed reported while it was taken
}

type state uint8

const (
	available state = iota
	taken
	spent
)

// feedUpdate is what the feed reported of a sandbox: where it is available, or that it is gone.
type feedUpdate struct {
	candidate Candidate
	gone      bool
}

// newestVersion is the newest version of a sandbox that the index knows.
func (e *entry) newestVersion() uint64 {
	if e.pending != nil {
		return e.pending.candidate.ResourceVersion
	}
	return e.ResourceVersion
}
