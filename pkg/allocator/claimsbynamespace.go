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

// claimsByNamespace finds the unfinished claims of a namespace, so that an event of a set or
// a template costs what the claims of its namespace cost, however many others have. Each
// namespace has a lock of its own: while the claims of one are copied, claims of the others
// do not wait.
type claimsByNamespace struct {
	seed  maphash.Seed
	parts [64]claimsPart
	// looks counts how often a claim was looked at here.
	looks atomic.Int64
}

// claimsPart has some of the namespaces. Its lock is held for one lookup at a time.
type claimsPart struct {
	mu sync.Mutex
	of map[string]*namespaceClaims
}

// namespaceClaims are the claims of one namespace.
type namespaceClaims struct {
	// users is how many callers have, or wait for, the lock. It is guarded by that of the part.
	users int

	mu    sync.Mutex
	byUID map[types.UID]*unfinished
}

func newClaimsByNamespace() claimsByNamespace { return claimsByNamespace{seed: maphash.MakeSeed()} }

// part returns the part that a namespace is in.
func (c *claimsByNamespace) part(namespace string) *claimsPart {
	return &c.parts[maphash.String(c.seed, namespace)%uint64(len(c.parts))]
}

// lock returns the claims of a namespace, locked.
func (c *claimsByNamespace) lock(namespace string) *namespaceClaims {
	p := c.part(namespace)
	p.mu.Lock()
	n := p.of[namespace]
	if n == nil {
		n = &namespaceClaims{byUID: map[types.UID]*unfinished{}}
		if p.of == nil {
			p.of = map[string]*namespaceClaims{}
		}
		p.of[namespace] = n
	}
	n.users++
	p.mu.Unlock()
	n.mu.Lock()
	return n
}

// unlock undoes lock. A namespace that has no claims is forgotten.
func (c *claimsByNamespace) unlock(namespace string, n *namespaceClaims) {
	n.mu.Unlock()
	p := c.part(namespace)
	p.mu.Lock()
	defer p.mu.Unlock()
	if n.users--; n.users == 0 && len(n.byUID) == 0 {
		delete(p.of, namespace)
	}
}

// in returns the claims of a namespace.
func (c *claimsByNamespace) in(namespace string) map[types.UID]*unfinished {
	n := c.lock(namespace)
	defer c.unlock(namespace, n)
	c.looks.Add(int64(len(n.byUID)))
	return maps.Clone(n.byUID)
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
