// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// latest is the longest time that a refill waits for claims to pause. It is also
// the longest time that one reconcile creates and deletes before it looks again.
const latest = time.Second

// bursts lets claims go before refill. Both end in the same store, and a claim has
// somebody waiting for it. While claims take from a set
//
//  1. its refill waits until they pause for a quiet period, but no longer than
//     latest after the first of them;
//  2. from then on it works with few workers while the pool is full and with more
//     the emptier it gets;
//  3. it does not wait at all, and uses all workers, once the pool is empty: then
//     claims wait for it.
//
// Example: quiet 100ms, a pool of 1000. A burst of 200 claims within
// 300ms meets no refill; the refill begins 100ms after the last claim. Claims that
// go on for minutes have a refill beside them after the first second, which finds
// its own width: the pool sinks until as much comes in as goes out.
//
// The stock is an estimate, the last count minus what was taken since. When it is
// wrong, a refill comes up to latest too late or too early; nothing depends on it.
type bursts struct {
	quiet time.Duration

	mu   sync.Mutex
	sets map[types.NamespacedName]*burst
}

type burst struct {
	// first is the first take that no reconcile has looked at, or zero.
	first time.Time
	last  time.Time
	stock int
	// cost is how long the last look at the pool took.
	cost time.Duration
}

func newBursts(quiet time.Duration) *bursts {
	return &bursts{quiet: quiet, sets: map[types.NamespacedName]*burst{}}
}

// took says that a claim took a sandbox out of the pool.
func (b *bursts) took(set types.NamespacedName, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sets[set]
	if s == nil {
		s = &burst{}
		b.sets[set] = s
	}
	if s.first.IsZero() {
		s.first = now
	}
	s.last = now
	s.stock--
}

// hold returns how long a refill should wait.
func (b *bursts) hold(set types.NamespacedName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sets[set]
	if s == nil || s.first.IsZero() || s.stock <= 0 {
		return 0
	}
	until := s.last.Add(b.quiet)
	if limit := s.first.Add(latest); limit.Before(until) {
		until = limit
	}
	return max(until.Sub(now), 0)
}

// gather returns how long to gather changes of a set before it is looked at. A
// look goes through the whole pool; in a large one, where something always
// changes, it may take a tenth of the time.
func (b *bursts) gather(set types.NamespacedName) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sets[set]
	if s == nil {
		return b.quiet
	}
	return max(b.quiet, min(10*s.cost, latest))
}

// counted says that a reconcile looked at the pool, which took cost, and found so
// many available.
func (b *bursts) counted(set types.NamespacedName, available int, cost time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sets[set]
	if s == nil {
		s = &burst{}
		b.sets[set] = s
	}
	s.first = time.Time{}
	s.stock = available
	s.cost = cost
}

// width returns how many of the workers a refill may use now.
func (b *bursts) width(set types.NamespacedName, replicas, workers int, now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sets[set]
	if s == nil || replicas <= 0 || s.last.IsZero() || now.Sub(s.last) >= b.quiet {
		return workers
	}
	stock := min(max(s.stock, 0), replicas)
	return 1 + (workers-1)*(replicas-stock)/replicas
}

// forget drops all about a set that is gone.
func (b *bursts) forget(set types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sets, set)
}
