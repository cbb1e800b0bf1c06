// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"slices"
	"sync"
)

// Pool is the SandboxSet whose sandboxes can be taken in one another's place. A set
// that is deleted and created again under its name is another pool.
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
	// Node that it runs on; empty if that is not known.
	Node string
}

func (c Candidate) key() entryKey { return entryKey{c.Pool.Namespace, c.Name} }

type entryKey struct{ namespace, name string }

// Index holds the available sandboxes of all pools. Only the Feed enters them. The
// allocator takes candidates, and reports what became of them. All methods are
// safe for concurrent use and cost O(1) per sandbox, whatever the pool's size; except
// for Prefer, Retain and Nodes.Replace, which go through all sandboxes.
//
// A sandbox is in one of three states here:
//
//	available  in a list of its pool, may be taken unless its revision is suspended
//	taken      by one caller, which must call Bound, Discard or Release
//	spent      claimed or lost at some resourceVersion: an update that is not newer
//	           must not bring it back
//
// Worked example: a is upserted at 5 (available 5), taken (taken 5), and bound
// by a transaction at 9 (spent 9). A status write at 5 that was still on its
// way is ignored. The watch then shows the bound sandbox at 9, which the feed
// reports with Remove(9): forgotten. Had the transaction lost because another
// client wrote a at 7, Discard leaves it spent at 5, and Upsert(7) makes it
// available again if it still is.
type Index struct {
	mu      sync.Mutex
	pools   *pools
	entries *entries
	// seen is the newest resourceVersion that the feed has reported.
	seen uint64
	// Suspensions keeps revisions from being taken from.
	Suspensions *Suspensions
	// Nodes is what is known of the nodes of the cluster.
	Nodes *Nodes
}

// New returns an empty index.
func New() *Index {
	ps := &pools{byKey: map[Pool]*pool{}, suspended: map[string]map[Pool]*pool{}}
	es := &entries{byKey: map[entryKey]*entry{}, pools: ps}
	x := &Index{pools: ps, entries: es}
	x.Suspensions = &Suspensions{mu: &x.mu, pools: ps}
	x.Nodes = &Nodes{mu: &x.mu, pools: ps, entries: es}
	ps.nodes = x.Nodes
	return x
}

// Upsert records that a sandbox is available at c.ResourceVersion. It reports
// whether the sandbox can now be taken from its pool and could not before.
func (x *Index) Upsert(c Candidate) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = max(x.seen, c.ResourceVersion)
	return x.entries.upsert(c)
}

// UpsertListed records that sandboxes were available in a list as of
// resourceVersion that did not come by the feed. It does nothing if the feed has
// seen something newer: then it has seen all that the list has, and perhaps that
// one of the sandboxes is gone, which an old list must not undo. It reports whether
// one of them can now be taken and could not before.
func (x *Index) UpsertListed(cs []Candidate, resourceVersion uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seen > resourceVersion {
		return false
	}
	stocked := false
	for _, c := range cs {
		stocked = x.entries.upsert(c) || stocked
	}
	return stocked
}

// Remove records that a sandbox is not available at resourceVersion: claimed, not
// ready, or gone.
func (x *Index) Remove(namespace, name string, resourceVersion uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = max(x.seen, resourceVersion)
	x.entries.remove(entryKey{namespace, name}, resourceVersion)
}

// Retain forgets every sandbox that keep does not hold for, as of resourceVersion:
// a fresh list of all sandboxes. Sandboxes with newer updates stay.
func (x *Index) Retain(keep func(namespace, name string) bool, resourceVersion uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = max(x.seen, resourceVersion)
	for key := range x.entries.byKey {
		if !keep(key.namespace, key.name) {
			x.entries.remove(key, resourceVersion)
		}
	}
}

// MarkTarget marks the revision of a pool that its set is to consist of (status.updateRevision); its
// sandboxes are taken first. It is empty if the pool's set is gone; sandboxes stay until the feed
// reports them.
func (x *Index) MarkTarget(p Pool, revision string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pools.ensure(p).target = revision
	x.pools.dropIfEmpty(p)
}

// Prefer makes the index hand out, of each revision, the sandboxes first for which
// prefers holds; nil holds for all. Servers of one store that prefer different ones
// hardly ever take the same. It costs a look at every available sandbox, and prefers
// is called for each that comes later.
func (x *Index) Prefer(prefers func(namespace, name string) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pools.prefers = prefers
	x.pools.sort()
}

// Take takes up to n available sandboxes, those of the target revision first, then those of
// the newest, and within a revision the preferred one that has waited longest. Those on nodes
// that take no pods come after all others. No other caller gets them until this caller calls
// Bound, Discard or Release.
func (x *Index) Take(p Pool, n int) []Candidate { return x.take(p, n, true) }

// TakeRegular is Take without the sandboxes on nodes that take no pods.
func (x *Index) TakeRegular(p Pool, n int) []Candidate { return x.take(p, n, false) }

func (x *Index) take(p Pool, n int, avoided bool) []Candidate {
	x.mu.Lock()
	defer x.mu.Unlock()
	pl := x.pools.byKey[p]
	if pl == nil || n <= 0 || pl.available == 0 {
		return nil
	}
	taking := make([]Candidate, 0, min(n, pl.available))
	for len(taking) < n && pl.available > 0 {
		e := pl.nextRevision().next()
		if e.avoided && !avoided {
			break
		}
		taking = append(taking, x.entries.take(e))
	}
	return taking
}

// Peek returns what TakeRegular would return, or with avoided up to n sandboxes on nodes that take no
// pods, in the order of Take. It takes nothing.
func (x *Index) Peek(p Pool, n int, avoided bool) []Candidate {
	x.mu.Lock()
	defer x.mu.Unlock()
	if pl := x.pools.byKey[p]; pl != nil {
		return pl.peek(nil, n, avoided)
	}
	return nil
}

// Bound reports that the taken sandboxes were bound at resourceVersion.
func (x *Index) Bound(cs []Candidate, resourceVersion uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range cs {
		x.entries.spend(c, resourceVersion)
	}
}

// Discard reports that the taken sandboxes have changed in the store: they become
// available again only by a newer update from the feed.
func (x *Index) Discard(cs ...Candidate) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range cs {
		x.entries.spend(c, c.ResourceVersion)
	}
}

// Release puts taken sandboxes back, to be the next ones, unless the feed has
// reported meanwhile that they are gone.
func (x *Index) Release(cs []Candidate) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range slices.Backward(cs) {
		x.entries.release(c)
	}
}

// Depth is how many sandboxes of a pool the index has.
type Depth struct {
	// Available could be taken now.
	Available int
	// Taken are by callers that have not reported yet what became of them.
	Taken int
}

// Depths returns the depth of every pool that is not empty, and of some that
// are. It costs a step per pool, whatever the pools hold.
func (x *Index) Depths() map[Pool]Depth {
	x.mu.Lock()
	defer x.mu.Unlock()
	depths := make(map[Pool]Depth, len(x.pools.byKey))
	for p, pl := range x.pools.byKey {
		depths[p] = Depth{Available: pl.available, Taken: pl.taken}
	}
	return depths
}

// Available is the number of sandboxes of the pool that could be taken now.
func (x *Index) Available(p Pool) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if pl := x.pools.byKey[p]; pl != nil {
		return pl.available
	}
	return 0
}
