// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"container/list"
	"slices"
	"sync"
)

// Pool is the SandboxSet whose sandboxes can be taken in one another's place. A set
// that is made again under its name is another pool.
type Pool struct {
	Namespace string
	Name      string
	UID       string
}

// Candidate is a sandbox that could be claimed when the index last heard of it.
type Candidate struct {
	Pool Pool
	// Name of the sandbox, unique within the pool's namespace.
	Name string
	// ResourceVersion at which it was available.
	ResourceVersion uint64
	// Revision of the pool's template that it was made from.
	Revision string
}

// Index holds the available sandboxes of all pools. Its one writer is the Feed;
// the allocator takes candidates and says what became of them. All methods are
// safe for concurrent use and cost O(1) per sandbox, whatever the pool's size.
//
// A sandbox is in one of three states here:
//
//	available  in its pool's queue, may be taken
//	taken      with a caller, who must answer with Bound, Discard or Release
//	spent      claimed or lost at some resourceVersion: news that is not newer
//	           is old news and must not bring it back
//
// Worked example: a is upserted at 5 (available 5), taken (taken 5), and bound
// by a transaction at 9 (spent 9). A status write at 5 that was still on its
// way is ignored. The watch then shows the bound sandbox at 9, which the feed
// reports with Remove(9): forgotten. Had the transaction lost because somebody
// wrote a at 7, Discard leaves it spent at 5, and Upsert(7) makes it available
// again if it still is.
type Index struct {
	mu      sync.Mutex
	pools   map[Pool]*pool
	entries map[entryKey]*entry
	// seen is the newest resourceVersion that the feed has told of.
	seen uint64
	// suspended is how many revisions are; resumed counts the calls of Resume.
	suspended int
	resumed   uint64
	// prefers says which sandboxes this server takes before the others; nil is all.
	prefers func(namespace, name string) bool
}

type entryKey struct{ namespace, name string }

type pool struct {
	current   string
	revisions map[string]*revision
	available int
	taken     int
}

// revision queues the available sandboxes of one template revision, those that
// this server prefers apart from those that other servers do. rank grows with
// every revision that appears.
type revision struct {
	preferred *list.List // taken from the front: the one that waited longest
	others    *list.List // taken from the back: far from where their server takes
	rank      uint64
	// suspended: see Suspend.
	suspended bool
}

type state uint8

const (
	available state = iota
	taken
	spent
)

type entry struct {
	Candidate
	state   state
	queue   *list.List    // while available
	element *list.Element // in queue
	news    *news         // what the feed said while it was taken
}

type news struct {
	candidate Candidate
	gone      bool
}

// heardOf is the newest version that is known of a sandbox.
func (e *entry) heardOf() uint64 {
	if e.news != nil {
		return e.news.candidate.ResourceVersion
	}
	return e.ResourceVersion
}

// New returns an empty index.
func New() *Index {
	return &Index{pools: map[Pool]*pool{}, entries: map[entryKey]*entry{}}
}

// Upsert says that a sandbox is available at c.ResourceVersion. It returns true
// if the sandbox can now be taken and could not before.
func (x *Index) Upsert(c Candidate) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = max(x.seen, c.ResourceVersion)
	return x.upsert(c)
}

// UpsertListed says that sandboxes were available in a list as of
// resourceVersion that did not come by the feed. It does nothing if the feed has
// seen something newer: then it has seen all that the list has, and perhaps that
// one of the sandboxes is gone, which an old list must not undo. It returns true
// if one of them can now be taken and could not before.
func (x *Index) UpsertListed(cs []Candidate, resourceVersion uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seen > resourceVersion {
		return false
	}
	stocked := false
	for _, c := range cs {
		stocked = x.upsert(c) || stocked
	}
	return stocked
}

func (x *Index) upsert(c Candidate) bool {
	key := entryKey{c.Pool.Namespace, c.Name}
	e := x.entries[key]
	if e == nil {
		e = &entry{Candidate: c}
		x.entries[key] = e
		x.enqueue(e)
		return true
	}
	if c.ResourceVersion <= e.heardOf() {
		return false
	}
	switch e.state {
	case available:
		was := e.Pool
		if c.Pool == was && c.Revision == e.Revision {
			e.ResourceVersion = c.ResourceVersion
			return false
		}
		x.dequeue(e)
		x.dropPoolIfEmpty(was)
		e.Candidate = c
		x.enqueue(e)
		return c.Pool != was
	case taken:
		e.news = &news{candidate: c}
		return false
	default:
		e.Candidate = c
		x.enqueue(e)
		return true
	}
}

// Remove says that a sandbox is not available at resourceVersion: claimed, not
// ready, or gone.
func (x *Index) Remove(namespace, name string, resourceVersion uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = max(x.seen, resourceVersion)
	key := entryKey{namespace, name}
	e := x.entries[key]
	if e == nil || resourceVersion < e.heardOf() {
		return
	}
	if e.state == taken {
		e.news = &news{candidate: Candidate{ResourceVersion: resourceVersion}, gone: true}
		return
	}
	x.forget(key, e)
}

// Retain forgets every sandbox that keep does not hold, as of resourceVersion:
// what a fresh list of all sandboxes says. Sandboxes with newer news stay.
func (x *Index) Retain(keep func(namespace, name string) bool, resourceVersion uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = max(x.seen, resourceVersion)
	for key, e := range x.entries {
		if keep(key.namespace, key.name) || e.heardOf() > resourceVersion {
			continue
		}
		if e.state == taken {
			e.news = &news{candidate: Candidate{ResourceVersion: resourceVersion}, gone: true}
			continue
		}
		x.forget(key, e)
	}
}

// SetCurrent says which revision of a pool's template is the newest; its
// sandboxes are taken first.
func (x *Index) SetCurrent(p Pool, revision string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pool(p).current = revision
	x.dropPoolIfEmpty(p)
}

// ForgetPool says that the pool's set is gone. Sandboxes stay until the feed
// reports them.
func (x *Index) ForgetPool(p Pool) {
	x.SetCurrent(p, "")
}

// Prefer makes the index hand out, of each revision, the sandboxes first that
// prefers approves of; nil approves of all. Servers of one store that prefer
// different ones hardly ever take the same. It costs a look at every available
// sandbox, and prefers is called for each that comes later.
func (x *Index) Prefer(prefers func(namespace, name string) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.prefers = prefers
	for _, pl := range x.pools {
		for _, r := range pl.revisions {
			x.sort(r)
		}
	}
}

// Take hands out up to n available sandboxes, those of the newest revision
// first and within a revision the preferred one that waited longest. Each is the
// caller's alone until it is answered with Bound, Discard or Release.
func (x *Index) Take(p Pool, n int) []Candidate {
	x.mu.Lock()
	defer x.mu.Unlock()
	pl := x.pools[p]
	if pl == nil || n <= 0 || pl.available == 0 {
		return nil
	}
	taking := make([]Candidate, 0, min(n, pl.available))
	for len(taking) < n && pl.available > 0 {
		e := pl.newest().next()
		x.dequeue(e)
		e.state = taken
		pl.taken++
		taking = append(taking, e.Candidate)
	}
	x.dropPoolIfEmpty(p)
	return taking
}

// Peek returns what Take would return, and takes nothing.
func (x *Index) Peek(p Pool, n int) []Candidate {
	x.mu.Lock()
	defer x.mu.Unlock()
	pl := x.pools[p]
	if pl == nil || n <= 0 {
		return nil
	}
	var peeked []Candidate
	for _, r := range pl.byAge() {
		for el := r.preferred.Front(); el != nil && len(peeked) < n; el = el.Next() {
			peeked = append(peeked, el.Value.(*entry).Candidate)
		}
		for el := r.others.Back(); el != nil && len(peeked) < n; el = el.Prev() {
			peeked = append(peeked, el.Value.(*entry).Candidate)
		}
	}
	return peeked
}

// Bound says that the taken sandboxes were claimed at resourceVersion.
func (x *Index) Bound(cs []Candidate, resourceVersion uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range cs {
		x.spend(c, resourceVersion)
	}
}

// Discard says that the taken sandboxes turned out to have moved: they come
// back only by newer news from the feed.
func (x *Index) Discard(cs ...Candidate) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range cs {
		x.spend(c, c.ResourceVersion)
	}
}

// Release puts taken sandboxes back, to be the next ones, unless the feed said
// meanwhile that they are gone.
func (x *Index) Release(cs []Candidate) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range slices.Backward(cs) {
		key := entryKey{c.Pool.Namespace, c.Name}
		e := x.entries[key]
		if e == nil || e.state != taken {
			continue
		}
		if n := e.news; n != nil {
			if n.gone {
				delete(x.entries, key)
				x.untake(c.Pool)
				continue
			}
			e.Candidate, e.news = n.candidate, nil
		}
		x.push(e, true)
		x.untake(c.Pool)
	}
}

// Available is the number of sandboxes of the pool that could be taken now.
func (x *Index) Available(p Pool) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if pl := x.pools[p]; pl != nil {
		return pl.available
	}
	return 0
}

// Len is the number of available sandboxes of all pools.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	total := 0
	for _, pl := range x.pools {
		total += pl.available
	}
	return total
}

func (x *Index) spend(c Candidate, resourceVersion uint64) {
	key := entryKey{c.Pool.Namespace, c.Name}
	e := x.entries[key]
	if e == nil || e.state != taken {
		return
	}
	x.untake(e.Pool)
	e.state = spent
	e.ResourceVersion = max(e.ResourceVersion, resourceVersion)
	if e.news != nil && e.news.candidate.ResourceVersion >= e.ResourceVersion {
		x.applyNews(key, e)
		return
	}
	e.news = nil
}

// applyNews gives a spent sandbox the state that the feed reported while it was
// taken.
func (x *Index) applyNews(key entryKey, e *entry) {
	n := e.news
	e.news = nil
	switch {
	case n.gone:
		delete(x.entries, key)
	case n.candidate.ResourceVersion > e.ResourceVersion:
		e.Candidate = n.candidate
		x.enqueue(e)
	}
}

func (x *Index) forget(key entryKey, e *entry) {
	if e.state == available {
		x.dequeue(e)
		x.dropPoolIfEmpty(e.Pool)
	}
	delete(x.entries, key)
}
