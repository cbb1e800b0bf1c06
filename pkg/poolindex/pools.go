// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

// pools are all pools that something is known about.
type pools struct {
	byKey map[Pool]*pool
	// suspended are those of byKey that have a suspended revision, by namespace.
	suspended map[string]map[Pool]*pool
	// prefers selects the sandboxes that this server takes before the others; nil
	// selects all.
	prefers func(namespace, name string) bool
	nodes   *Nodes
}

// ensure returns the pool p, added if it is new.
func (ps *pools) ensure(p Pool) *pool {
	pl := ps.byKey[p]
	if pl == nil {
		pl = &pool{revisions: map[string]*revision{}}
		ps.byKey[p] = pl
	}
	return pl
}

// dropIfEmpty keeps deleted pools from piling up.
func (ps *pools) dropIfEmpty(p Pool) {
	if pl := ps.byKey[p]; pl != nil && pl.empty() {
		delete(ps.byKey, p)
	}
}

// enqueue makes an entry available, as the next one of its place or as the last,
// and reports whether it can be taken.
func (ps *pools) enqueue(e *entry, next bool) bool {
	e.state = available
	return ps.ensure(e.Pool).enqueue(e, ps.placeOf(e), next)
}

// dequeue takes an available entry out of its queue, and reports whether it could be
// taken. Its pool stays, even if it is empty now.
func (ps *pools) dequeue(e *entry) bool {
	pl := ps.byKey[e.Pool]
	could := pl.dequeue(e)
	if pl.suspended == 0 {
		ps.unsuspend(e.Pool)
	}
	return could
}

// move queues an available entry anew if it belongs into another queue of its revision.
func (ps *pools) move(e *entry) {
	if avoided := ps.nodes.avoids(e.Node); avoided != e.avoided {
		ps.byKey[e.Pool].move(e, ps.placeOf(e))
	}
}

// suspend notes that a pool has a suspended revision.
func (ps *pools) suspend(p Pool, pl *pool) {
	if ps.suspended[p.Namespace] == nil {
		ps.suspended[p.Namespace] = map[Pool]*pool{}
	}
	ps.suspended[p.Namespace][p] = pl
}

// unsuspend notes that a pool has none.
func (ps *pools) unsuspend(p Pool) {
	delete(ps.suspended[p.Namespace], p)
	if len(ps.suspended[p.Namespace]) == 0 {
		delete(ps.suspended, p.Namespace)
	}
}

// resume lets the suspended revisions of some pools of a namespace be taken from again,
// and returns these pools.
func (ps *pools) resume(namespace string, of func(Pool) bool) []Pool {
	var resumed []Pool
	for p, pl := range ps.suspended[namespace] {
		if of(p) {
			pl.resume()
			ps.unsuspend(p)
			resumed = append(resumed, p)
		}
	}
	return resumed
}

// untake counts a taken sandbox of the pool as taken no longer.
func (ps *pools) untake(p Pool) {
	ps.byKey[p].taken-- // a pool stays as long as something of it is taken
	ps.dropIfEmpty(p)
}

// placeOf returns where an entry is to be queued.
func (ps *pools) placeOf(e *entry) place {
	return place{
		preferred: ps.prefers == nil || ps.prefers(e.Pool.Namespace, e.Name),
		avoided:   ps.nodes.avoids(e.Node),
	}
}

// sort queues all entries anew, each in its place.
func (ps *pools) sort() {
	for _, pl := range ps.byKey {
		for _, r := range pl.revisions {
			r.sort(ps.placeOf)
		}
	}
}
