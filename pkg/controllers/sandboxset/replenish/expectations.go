// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
)

// expectationTTL is how long an own write may stay unseen. A cache that misses a
// short-lived sandbox altogether must not count it for ever. Kubernetes'
// controllers use the same time.
const expectationTTL = 5 * time.Minute

// expectations remembers what this controller wrote and the cache has not shown
// yet, so that a reconcile that reads an old cache neither makes a sandbox twice
// nor counts a deleted one. Sandboxes are known by UID: names come back.
//
// The answer to a create and the event of the cache about it may come in either
// order:
//
//	begin · created(uid) · seen(uid)    expected in between
//	begin · seen(uid) · created(uid)    early: seen before it was expected
//
// Early ones are remembered only while a create of the same set is on its way.
//
// A reconcile must take its snapshot before it reads the cache. Then a sandbox
// that arrives between the two is in both, and the census counts it once; the
// other way round it would be in neither, and be made again.
type expectations struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	sets map[types.NamespacedName]*expected
	// setOf finds the set of a sandbox that is expected to come or to go: the
	// event about it may show no owner any more.
	setOf map[types.UID]types.NamespacedName
}

// expected are the expectations of one set.
type expected struct {
	onTheWay int
	early    sets.Set[types.UID]
	creates  map[types.UID]expectedCreate
	deletes  map[types.UID]time.Time // until when
}

type expectedCreate struct {
	revision string
	until    time.Time
}

func newExpectations(c clock.PassiveClock) *expectations {
	return &expectations{
		clock: c,
		sets:  map[types.NamespacedName]*expected{},
		setOf: map[types.UID]types.NamespacedName{},
	}
}

func (x *expectations) get(set types.NamespacedName) *expected {
	e := x.sets[set]
	if e == nil {
		e = &expected{
			early:   sets.Set[types.UID]{},
			creates: map[types.UID]expectedCreate{},
			deletes: map[types.UID]time.Time{},
		}
		x.sets[set] = e
	}
	return e
}

// begin says that a create is about to be sent. Exactly one of created and
// failed must follow.
func (x *expectations) begin(set types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.get(set).onTheWay++
}

// created says that a create made this sandbox.
func (x *expectations) created(set types.NamespacedName, sandbox types.UID, revision string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.get(set)
	if !e.early.Has(sandbox) {
		e.creates[sandbox] = expectedCreate{revision, x.clock.Now().Add(expectationTTL)}
		x.setOf[sandbox] = set
	}
	e.arrived()
}

// failed says that a create made nothing.
func (x *expectations) failed(set types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.get(set).arrived()
}

func (e *expected) arrived() {
	e.onTheWay--
	if e.onTheWay <= 0 {
		e.onTheWay = 0
		clear(e.early)
	}
}

// seen says that the cache shows this sandbox of this set.
func (x *expectations) seen(set types.NamespacedName, sandbox types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.sets[set]
	if e == nil {
		return
	}
	if _, ok := e.creates[sandbox]; ok {
		delete(e.creates, sandbox)
		delete(x.setOf, sandbox)
	} else if e.onTheWay > 0 {
		e.early.Insert(sandbox)
	}
}

// deleting says that this sandbox is about to be deleted. kept or gone follows.
func (x *expectations) deleting(set types.NamespacedName, sandbox types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.get(set).deletes[sandbox] = x.clock.Now().Add(expectationTTL)
	x.setOf[sandbox] = set
}

// kept says that the delete did not happen.
func (x *expectations) kept(sandbox types.UID) { x.gone(sandbox) }

// gone says that the cache shows that this sandbox is gone, or about to be.
func (x *expectations) gone(sandbox types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	set, ok := x.setOf[sandbox]
	if !ok {
		return
	}
	delete(x.setOf, sandbox)
	delete(x.sets[set].creates, sandbox)
	delete(x.sets[set].deletes, sandbox)
}

// snapshot returns the sandboxes that the cache owes an arrival, with their
// revisions, and those that it owes an end. Both are the caller's to change.
func (x *expectations) snapshot(set types.NamespacedName) (map[types.UID]string, sets.Set[types.UID]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	creates, deletes := map[types.UID]string{}, sets.Set[types.UID]{}
	e := x.sets[set]
	if e == nil {
		return creates, deletes
	}
	now := x.clock.Now()
	for sandbox, create := range e.creates {
		if now.After(create.until) {
			delete(e.creates, sandbox)
			delete(x.setOf, sandbox)
			continue
		}
		creates[sandbox] = create.revision
	}
	for sandbox, until := range e.deletes {
		if now.After(until) {
			delete(e.deletes, sandbox)
			delete(x.setOf, sandbox)
			continue
		}
		deletes.Insert(sandbox)
	}
	return creates, deletes
}

// forget drops all about a set that is gone.
func (x *expectations) forget(set types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.sets, set)
	maps.DeleteFunc(x.setOf, func(_ types.UID, of types.NamespacedName) bool { return of == set })
}
