// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"hash/maphash"
	"iter"
	"maps"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// claimsByNamespace find the unfinished claims of a namespace, so that news of a set or a
// template cost what the claims of its namespace do, however many others have. They are in
// parts, each with a lock of its own, as the halls of the queue are: while the claims of a
// namespace are gathered, others do not wait for them.
type claimsByNamespace struct {
	seed  maphash.Seed
	parts [64]claimsPart
	// looks counts how often a claim was looked at here.
	looks atomic.Int64
}

type claimsPart struct {
	mu sync.Mutex
	of map[string]map[types.UID]*unfinished
}

func newClaimsByNamespace() claimsByNamespace { return claimsByNamespace{seed: maphash.MakeSeed()} }

// part returns the part that a namespace is in.
func (c *claimsByNamespace) part(namespace string) *claimsPart {
	return &c.parts[maphash.String(c.seed, namespace)%uint64(len(c.parts))]
}

// lock returns the part that a namespace is in, locked.
func (c *claimsByNamespace) lock(namespace string) *claimsPart {
	p := c.part(namespace)
	p.mu.Lock()
	return p
}

// put adds a claim. The lock of its part is held.
func (c *claimsByNamespace) put(u *unfinished, uid types.UID) {
	p := c.part(u.key.Namespace)
	if p.of == nil {
		p.of = map[string]map[types.UID]*unfinished{}
	}
	if p.of[u.key.Namespace] == nil {
		p.of[u.key.Namespace] = map[types.UID]*unfinished{}
	}
	p.of[u.key.Namespace][uid] = u
}

// remove removes a claim. The lock of its part is held.
func (c *claimsByNamespace) remove(u *unfinished, uid types.UID) {
	p := c.part(u.key.Namespace)
	delete(p.of[u.key.Namespace], uid)
	if len(p.of[u.key.Namespace]) == 0 {
		delete(p.of, u.key.Namespace)
	}
}

// in returns the claims of a namespace.
func (c *claimsByNamespace) in(namespace string) map[types.UID]*unfinished {
	p := c.lock(namespace)
	defer p.mu.Unlock()
	c.looks.Add(int64(len(p.of[namespace])))
	return maps.Clone(p.of[namespace])
}

// all returns the claims of all namespaces, one namespace after the other.
func (c *claimsByNamespace) all() iter.Seq2[types.UID, *unfinished] {
	return func(yield func(types.UID, *unfinished) bool) {
		for i := range c.parts {
			for _, namespace := range c.parts[i].names() {
				for uid, u := range c.in(namespace) {
					if !yield(uid, u) {
						return
					}
				}
			}
		}
	}
}

// names returns the namespaces of a part that have claims.
func (p *claimsPart) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make([]string, 0, len(p.of))
	for namespace := range p.of {
		names = append(names, namespace)
	}
	return names
}
