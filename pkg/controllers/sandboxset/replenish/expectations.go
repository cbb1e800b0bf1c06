// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// expectationTTL is how long an own write may stay unseen. A cache that misses a
// short-lived sandbox altogether must not count it without end. Kubernetes'
// controllers use the same time.
const expectationTTL = 5 * time.Minute

// expectations are the writes of this controller that the cache has not shown yet,
// so that a reconcile that reads an old cache neither creates a sandbox twice nor counts a
// deleted one. Sandboxes are known by UID, because a user may create a sandbox of the same
// name.
//
// The answer to a create and the event of the cache about it may come in either
// order:
//
//	expectCreate · created(uid) · createObserved(uid)    expected in between
//	expectCreate · createObserved(uid) · created(uid)    early: observed before it was expected
//
// Early ones are remembered only while a create is in flight.
//
// A reconcile must take its snapshot before it reads the cache. Then a sandbox
// that arrives between the two is in both, and poolCounts counts it once; the
// other way round it would be in neither, and be created again.
type expectations struct {
	inFlight int
	early    sets.Set[types.UID]
	creates  map[types.UID]expectedCreate
	deletes  map[types.UID]time.Time // until when
}

type expectedCreate struct {
	revision string
	until    time.Time
}

func newExpectations() expectations {
	return expectations{
		early:   sets.Set[types.UID]{},
		creates: map[types.UID]expectedCreate{},
		deletes: map[types.UID]time.Time{},
	}
}

// expectCreate notes that a create is about to be sent. Exactly one of created and
// createFailed must follow.
func (e *expectations) expectCreate() { e.inFlight++ }

// created notes that a create made this sandbox.
func (e *expectations) created(sandbox types.UID, revision string, now time.Time) {
	if !e.early.Has(sandbox) {
		e.creates[sandbox] = expectedCreate{revision, now.Add(expectationTTL)}
	}
	e.createDone()
}

// createFailed notes that a create made nothing.
func (e *expectations) createFailed() { e.createDone() }

func (e *expectations) createDone() {
	if e.inFlight--; e.inFlight <= 0 {
		e.inFlight = 0
		clear(e.early)
	}
}

// createObserved notes that the cache shows this sandbox.
func (e *expectations) createObserved(sandbox types.UID) {
	if _, ok := e.creates[sandbox]; ok {
		delete(e.creates, sandbox)
	} else if e.inFlight > 0 {
		e.early.Insert(sandbox)
	}
}

// expectDelete notes that this sandbox is about to be deleted. deleteObserved follows.
func (e *expectations) expectDelete(sandbox types.UID, now time.Time) {
	e.deletes[sandbox] = now.Add(expectationTTL)
}

// deleteObserved notes that the sandbox is gone or about to be, or that its delete
// failed: no event is owed.
func (e *expectations) deleteObserved(sandbox types.UID) {
	delete(e.creates, sandbox)
	delete(e.deletes, sandbox)
}

// snapshot returns the sandboxes whose arrival the cache has still to show, with
// their revisions, and those whose end it has still to show. Both are the caller's to
// change.
func (e *expectations) snapshot(now time.Time) (map[types.UID]string, sets.Set[types.UID]) {
	maps.DeleteFunc(e.creates, func(_ types.UID, c expectedCreate) bool { return now.After(c.until) })
	maps.DeleteFunc(e.deletes, func(_ types.UID, until time.Time) bool { return now.After(until) })
	creates := make(map[types.UID]string, len(e.creates))
	for sandbox, c := range e.creates {
		creates[sandbox] = c.revision
	}
	return creates, sets.KeySet(e.deletes)
}
