// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"time"

	"github.com/sandlot-io/sandlot/pkg/controllers/quietperiod"
)

// maxTurn is the longest time between two counts of a pool where something happens:
// a reconcile waits no longer for claims to pause, and creates and deletes no longer.
const maxTurn = time.Second

// claimRate is what claims take from a set at present. They go before the refill: both
// end in the same store and the same cluster, and a user waits for the claim. While
// claims take from a set, without a pause of a quiet period,
//
//  1. the pool is counted, and its status written, once every turn;
//  2. its refill waits for their end, as long as half of the pool is there, and no
//     longer than quietperiod.MaxWait: that is what the pool is for;
//  3. from then on it works with few workers while the pool is full, with more the
//     emptier it gets, and with all of them once it is empty: then claims wait for it.
//
// Example: quiet period 100ms, a pool of 1000. 400 claims within 3s meet
// no refill; the refill begins 100ms after the last claim. Claims that go on for
// minutes have a refill beside them once half of the pool or five seconds are gone,
// which finds its own width: the pool sinks until as much comes in as goes out.
//
// The stock is an estimate, the last count minus what was taken since. When it is
// wrong, a refill comes up to quietperiod.MaxWait too late or too early; nothing depends on it.
type claimRate struct {
	quiet  time.Duration
	claims quietperiod.ClaimActivity
	// uncounted is the first take that no count has followed, or zero, and last the
	// last take.
	uncounted, last time.Time
	// taken is how many were ever taken, and stock how many are left of the available
	// ones that the last count found.
	taken, stock int
	// cost is how long the last count took.
	cost time.Duration
}

// took notes that a claim took a sandbox out of the pool.
func (b *claimRate) took(now time.Time) {
	if b.uncounted.IsZero() {
		b.uncounted = now
	}
	b.claims.Claimed(b.quiet, now)
	b.last = now
	b.taken++
	b.stock--
}

// countDelay is how long to wait before the pool is counted.
func (b *claimRate) countDelay(now time.Time) time.Duration {
	if b.uncounted.IsZero() || b.stock <= 0 {
		return 0
	}
	return max(min(b.last.Add(b.quiet).Sub(now), b.uncounted.Add(maxTurn).Sub(now)), 0)
}

// counted notes that a count of the pool took cost, and found so many available when
// taken had been taken. The count may have found what was taken since then: that is
// no longer there.
func (b *claimRate) counted(available, taken int, cost time.Duration) {
	b.uncounted = time.Time{}
	b.stock = available - (b.taken - taken)
	b.cost = cost
}

// refillDelay is how long to wait before the pool is refilled, once it was counted.
func (b *claimRate) refillDelay(replicas int, now time.Time) time.Duration {
	if 2*b.stock < replicas {
		return 0
	}
	return min(b.claims.Wait(b.quiet, now), maxTurn)
}

// eventDelay is how long to gather events of a set before it is reconciled. A count
// goes through the whole pool; in a large one, where something always changes, it may
// take a tenth of the time.
func (b *claimRate) eventDelay() time.Duration {
	return max(b.quiet, min(10*b.cost, maxTurn))
}

// width is how many of the workers a refill may use now. 0 means that it has to stop.
func (b *claimRate) width(replicas, workers int, now time.Time) int {
	if replicas <= 0 || !b.claims.IsActive(b.quiet, now) {
		return workers
	}
	if b.refillDelay(replicas, now) > 0 {
		return 0
	}
	stock := min(max(b.stock, 0), replicas)
	return 1 + (workers-1)*(replicas-stock)/replicas
}

const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
)

// backoff slows down a set whose template does not keep running. Such a set would
// create sandboxes, remove them when they ended, and create new ones, as fast as the
// server can. While sandboxes of the current revision end, failed or not, and no
// newer one of them is available, the set pauses between rounds: a second, then
// two, four, ... up to a minute. The first sandbox that does become available ends
// that, and so does a change of the template. Those that were available before
// prove nothing: an image may be gone from its registry, or broken under its tag.
type backoff struct {
	revision string
	pause    time.Duration // 0 while nothing fails
	until    time.Time
	// newestEnded is when the newest sandbox that ended was created.
	newestEnded time.Time
}

// next takes in how the sandboxes of a revision fare, and returns how long the set
// must pause before it creates again.
func (b *backoff) next(revision string, o outcome, now time.Time) time.Duration {
	if b.revision != revision {
		*b = backoff{revision: revision}
	}
	newestEnded := later(b.newestEnded, o.newestEnded)
	switch {
	case !o.newestAvailable.IsZero() && !o.newestAvailable.Before(newestEnded):
		// Times in objects have whole seconds: one of the same second counts.
		*b = backoff{revision: revision}
		return 0
	case o.ended == 0:
		return max(b.until.Sub(now), 0)
	}
	b.newestEnded = newestEnded
	// Those that end during a pause are of the round before it.
	if !now.Before(b.until) {
		b.pause = max(firstBackoff, min(2*b.pause, maxBackoff))
		b.until = now.Add(b.pause)
	}
	return b.until.Sub(now)
}

// succeeded notes that a sandbox of a revision has become available. A reconcile
// might never see that, if claims wait and take it at once.
func (b *backoff) succeeded(revision string) {
	if b.revision == revision {
		*b = backoff{revision: revision}
	}
}
