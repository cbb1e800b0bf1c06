// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/controllers/quietperiod"
)

// turn is the longest time between two looks at a pool where something happens: a
// reconcile waits no longer for claims to pause, and creates and deletes no longer.
const turn = time.Second

// bursts lets claims go before refill. Both end in the same store and the same
// cluster, and a claim has somebody waiting for it. While claims take from a set,
// without a pause of a quiet period,
//
//  1. the pool is looked at, and its status written, once every turn;
//  2. its refill waits for their end, as long as half of the pool is there, and no
//     longer than quietperiod.MaxWait: that is what the pool is for;
//  3. from then on it works with few workers while the pool is full, with more the
//     emptier it gets, and with all of them once it is empty: then claims wait for it.
//
// Example: quiet 100ms, a pool of 1000. A burst of 400 claims within
// 3s meets no refill; the refill begins 100ms after the last claim. Claims that
// go on for minutes have a refill beside them once half of the pool or five seconds
// are gone, which finds its own width: the pool sinks until as much comes in as goes
// out.
//
// The stock is an estimate, the last count minus what was taken since. When it is
// wrong, a refill comes up to quietperiod.MaxWait too late or too early; nothing depends on it.
type bursts struct {
	quiet time.Duration
	lull  *quietperiod.Tracker

	mu   sync.Mutex
	sets map[types.NamespacedName]*burst
}

type burst struct {
	// first is the first take that no reconcile has looked at, or zero.
	first time.Time
	last  time.Time
	// taken is how many were ever taken, and stock how many were left of those that
	// the last look found.
	taken, stock int
	// cost is how long the last look at the pool took.
	cost time.Duration
}

func newBursts(quiet time.Duration) *bursts {
	return &bursts{quiet: quiet, lull: quietperiod.New(quiet), sets: map[types.NamespacedName]*burst{}}
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
	b.lull.Claimed(set, now)
	s.last = now
	s.taken++
	s.stock--
}

// taken returns how many claims have ever taken. Ask before a look at the pool.
func (b *bursts) taken(set types.NamespacedName) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sets[set]; s != nil {
		return s.taken
	}
	return 0
}

// hold returns how long a look at the pool should wait.
func (b *bursts) hold(set types.NamespacedName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sets[set]
	if s == nil || s.first.IsZero() || s.stock <= 0 {
		return 0
	}
	return max(earlier(s.last.Add(b.quiet), s.first.Add(turn)).Sub(now), 0)
}

// giveWay returns how long a refill should wait; a look at the pool comes before.
func (b *bursts) giveWay(set types.NamespacedName, replicas int, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sets[set]; s == nil || 2*s.stock < replicas {
		return 0
	}
	return min(b.lull.Wait(set, now), turn)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
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
	return max(b.quiet, min(10*s.cost, turn))
}

// counted says that a reconcile looked at the pool, which took cost, and found so
// many available when taken had been taken. What was taken since then it may have
// found: that is no longer there.
func (b *bursts) counted(set types.NamespacedName, available, taken int, cost time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sets[set]
	if s == nil {
		s = &burst{}
		b.sets[set] = s
	}
	s.first = time.Time{}
	s.stock = available - (s.taken - taken)
	s.cost = cost
}

// left returns how many available sandboxes the last look at the pool found, less
// those that claims have taken since.
func (b *bursts) left(set types.NamespacedName) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sets[set]; s != nil {
		return s.stock
	}
	return 0
}

// width returns how many of the workers a refill may use now. 0 means that it has
// to give way.
func (b *bursts) width(set types.NamespacedName, replicas, workers int, now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sets[set]
	if s == nil || replicas <= 0 || !b.lull.InBurst(set, now) {
		return workers
	}
	if 2*s.stock >= replicas && b.lull.Wait(set, now) > 0 {
		return 0
	}
	stock := min(max(s.stock, 0), replicas)
	return 1 + (workers-1)*(replicas-stock)/replicas
}

// forget drops all about a set that is gone.
func (b *bursts) forget(set types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lull.Forget(set)
	delete(b.sets, set)
}
