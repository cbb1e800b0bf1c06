// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"time"

	"github.com/sandlot-io/sandlot/pkg/controllers/quietperiod"
)

// maxCountInterval is the longest time between two counts of a pool where something happens:
// a reconcile waits no longer for claims to pause, and creates and deletes no longer.
const maxCountInterval = time.Second

// claimRate is what claims take from a set at present. They go before the refill: both
// end in the same store and the same cluster, and a user waits for the claim. While
// claims take from a set, without a pause of a quiet period,
//
//  1. the pool is counted, and its status written, once every maxCountInterval;
//  2. its refill waits for their end, as long as half of the pool is there, and no
//     longer than quietperiod.MaxWait: that is what the pool is for;
//  3. from then on it has few writes under way while the pool is full. The emptier the pool,
//     the more. It gets all of them once the pool is empty: then claims wait for it.
//
// Example: quiet period 100ms, a pool of 1000. 400 claims within 3s meet
// no refill; the refill begins 100ms after the last claim. Claims that continue for
// minutes have a refill beside them once half of the pool is taken or five seconds have
// passed. The pool shrinks until refills are as fast as claims.
//
// availableLeft is an estimate, the last count minus what was taken since. When it is
// wrong, a refill comes up to quietperiod.MaxWait too late or too early. removalGuard takes it for the
// floor of a roll-out: too low, it deletes fewer. It is too high only by sandboxes that have become not
// ready, or have gone, since the count.
type claimRate struct {
	quiet  time.Duration
	claims quietperiod.ClaimActivity
	// uncounted is the first take that no count has followed, or zero, and last the
	// last take.
	uncounted, last time.Time
	// claimed is how many claims have ever taken, and availableLeft how many are left of the available
	// ones that the last count found.
	claimed, availableLeft int
	// cost is how long the last count took, without what else a reconcile does.
	cost time.Duration
}

// recordClaim records that a claim took a sandbox out of the pool.
func (r *claimRate) recordClaim(now time.Time) {
	if r.uncounted.IsZero() {
		r.uncounted = now
	}
	r.claims.Claimed(r.quiet, now)
	r.last = now
	r.claimed++
	r.availableLeft--
}

// countDelay is how long to wait before the pool is counted.
func (r *claimRate) countDelay(now time.Time) time.Duration {
	if r.uncounted.IsZero() || r.availableLeft <= 0 {
		return 0
	}
	return max(min(r.last.Add(r.quiet).Sub(now), r.uncounted.Add(maxCountInterval).Sub(now)), 0)
}

// recordCount records that a count of the pool took cost, and found so many available. claimed
// is r.claimed when it began. The count may have found what was claimed since then: that is
// no longer there.
func (r *claimRate) recordCount(available, claimed int, cost time.Duration) {
	r.uncounted = time.Time{}
	r.availableLeft = available - (r.claimed - claimed)
	r.cost = cost
}

// refillDelay is how long to wait before the pool is refilled, once it was counted.
func (r *claimRate) refillDelay(desired int, now time.Time) time.Duration {
	if 2*r.availableLeft < desired {
		return 0
	}
	return min(r.claims.Wait(r.quiet, now), maxCountInterval)
}

// eventDelay is how long to gather events of a set before it is reconciled. A count
// goes through the whole pool; in a large one, where something always changes, it may
// take a tenth of the time.
func (r *claimRate) eventDelay() time.Duration {
	return max(r.quiet, min(10*r.cost, maxCountInterval))
}

// parallelism is how many of maxWrites writes a refill may have under way now. 0 means that it has to stop.
func (r *claimRate) parallelism(desired, maxWrites int, now time.Time) int {
	if desired <= 0 || !r.claims.IsActive(r.quiet, now) {
		return maxWrites
	}
	if r.refillDelay(desired, now) > 0 {
		return 0
	}
	left := min(max(r.availableLeft, 0), desired)
	return 1 + (maxWrites-1)*(desired-left)/desired
}
