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

// claimsByNamespace indexes the unfinished claims by namespace, so that the cost of an event
// of a set or a template grows with the claims of its namespace and not with all claims. Each
// namespace has its own lock: copying the claims of one namespace does not block the others.
type claimsByNamespace struct {
	seed   maphash.Seed
	shards [64]claimsShard
	// looks counts the claims that were returned, for tests.
	looks atomic.Int64
}

// claimsShard has some of the namespaces. Its lock is held for one map lookup at a time.
type claimsShard struct {
	mu          sync.Mutex
	byNamespace map[string]*namespaceClaims
}

// namespaceClaims are the claims of one namespace.
type namespaceClaims struct {
	// users is how many callers have, or wait for, the lock. The lock of the shard guards it.
	users int

	mu    sync.Mutex
	byUID map[types.UID]*unfinishedClaim
}

func newClaimsByNamespace() claimsByNamespace { return claimsByNamespace{seed: maphash.MakeSeed()} }

// shard returns the shard that a namespace is in.
func (c *claimsByNamespace) shard(namespace string) *claimsShard {
	return &c.shards[maphash.String(c.seed, namespace)%uint64(len(c.shards))]
}

// lock returns the claims of a namespace, locked.
func (c *claimsByNamespace) lock(namespace string) *namespaceClaims {
	s := c.shard(namespace)
	s.mu.Lock()
	n := s.byNamespace[namespace]
	if n == nil {
		n = &namespaceClaims{byUID: map[types.UID]*unfinishedClaim{}}
		if s.byNamespace == nil {
			s.byNamespace = map[string]*namespaceClaims{}
		}
		s.byNamespace[namespace] = n
	}
	n.users++
	s.mu.Unlock()
	n.mu.Lock()
	return n
}

// unlock undoes lock, and removes a namespace that has no claims and no other users.
func (c *claimsByNamespace) unlock(namespace string, n *namespaceClaims) {
	n.mu.Unlock()
	s := c.shard(namespace)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.users--; n.users == 0 && len(n.byUID) == 0 {
		delete(s.byNamespace, namespace)
	}
}

// in returns a copy of the claims of a namespace.
func (c *claimsByNamespace) in(namespace string) map[types.UID]*unfinishedClaim {
	n := c.lock(namespace)
	defer c.unlock(namespace, n)
	c.looks.Add(int64(len(n.byUID)))
	return maps.Clone(n.byUID)
}

// all iterates over the claims of all namespaces. It copies one namespace at a time.
func (c *claimsByNamespace) all() iter.Seq2[types.UID, *unfinishedClaim] {
	return func(yield func(types.UID, *unfinishedClaim) bool) {
		for i := range c.shards {
			for _, namespace := range c.shards[i].namespaces() {
				for uid, u := range c.in(namespace) {
					if !yield(uid, u) {
						return
					}
				}
			}
		}
	}
}

// namespaces returns the names of the namespaces of a shard.
func (s *claimsShard) namespaces() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.byNamespace))
	for namespace := range s.byNamespace {
		names = append(names, namespace)
	}
	return names
}
