// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"sync"
	"sync/atomic"
	"time"
)

// Limit bounds the bytes that are written for a namespace or a user.
type Limit struct {
	// Rate is in bytes per second; 0 disables the limit. Burst is in bytes.
	Rate, Burst int64
}

const (
	// Below fullFrom, every namespace and user keeps at least this burst, and this rate while it
	// has not used more than this burst, so that light writers are not throttled because of heavy
	// ones.
	lightBurst = 1 << 20
	lightRate  = 64 << 10

	// As soon as limits are reduced, a burst is at most 1/burstOfQuota of etcd's quota, and a
	// rate at most 1/rateOfQuota of it per second.
	burstOfQuota, rateOfQuota = 8, 256

	// shortestWait and longestWait bound the time after which a client is told to retry.
	shortestWait = time.Second
	longestWait  = 30 * time.Second

	// maxBuckets bounds the number of buckets for namespaces, and for users. A full bucket is
	// removed. Names beyond that share one bucket.
	maxBuckets = 1 << 14
)

// reduced returns the limit for a given throttling, capped at a share of the quota. Without
// throttling it returns l.
func (l Limit) reduced(quota int64, throttling float64) Limit {
	if throttling == 0 {
		return l
	}
	reduce := func(bytes, most int64) int64 { return int64(float64(min(bytes, most)) * (1 - throttling)) }
	return Limit{Rate: reduce(l.Rate, quota/rateOfQuota), Burst: reduce(l.Burst, quota/burstOfQuota)}
}

// rate returns the refill rate in bytes per second under the current limit. Light writers keep
// lightRate.
func (l Limit) rate(used float64, current Limit) float64 {
	rate := float64(current.Rate)
	if used <= l.guaranteedBurst() {
		rate = max(rate, min(float64(l.Rate), lightRate))
	}
	return rate
}

// burst returns the size of the bucket under the current limit.
func (l Limit) burst(current Limit) float64 { return max(l.guaranteedBurst(), float64(current.Burst)) }

// guaranteedBurst returns the size that the bucket has at least.
func (l Limit) guaranteedBurst() float64 { return min(float64(l.Burst), lightBurst) }

// bucket is the token bucket of a namespace or user.
type bucket struct {
	mu sync.Mutex
	// used is the number of tokens that have been taken and not refilled.
	used float64
	// last is when the bucket was last refilled.
	last time.Time
	// removed means that another bucket may have taken the place of this one.
	removed bool
}

// refill adds the tokens for the time since the last call. The caller holds b.mu.
func (b *bucket) refill(now time.Time, l, current Limit) {
	if elapsed := now.Sub(b.last); elapsed > 0 {
		b.used = max(0, b.used-l.rate(b.used, current)*elapsed.Seconds())
		b.last = now
	}
}

// take takes n tokens and returns 0, or takes none and returns when to retry. As long as any
// token is left it takes n of any size, and used may exceed the burst. Exempt writes always
// succeed, but use at most three quarters of the burst. The second result is false if the bucket
// was removed; nothing is taken then.
func (b *bucket) take(now time.Time, l, current Limit, n int64, exempt bool) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.removed {
		return 0, false
	}
	b.refill(now, l, current)
	burst := l.burst(current)
	switch {
	case exempt:
		b.used = max(b.used, min(b.used+float64(n), 0.75*float64(l.Burst)))
		return 0, true
	case b.used < burst:
		b.used += float64(n)
		return 0, true
	}
	seconds := longestWait.Seconds()
	if rate := l.rate(b.used, current); rate > 0 {
		seconds = min(seconds, (b.used-burst)/rate)
	}
	return max(shortestWait, time.Duration(seconds*float64(time.Second))), true
}

// refund returns n tokens for bytes that were not written.
func (b *bucket) refund(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(0, b.used-float64(n))
}

// buckets are the buckets of all namespaces, or of all users.
type buckets struct {
	limit  Limit
	byName sync.Map // of *bucket by name
	n      atomic.Int64
	// overflow is shared by all names beyond maxBuckets.
	overflow bucket
}

// of returns the bucket of a name.
func (b *buckets) of(name string, now time.Time) *bucket {
	if found, ok := b.byName.Load(name); ok {
		return found.(*bucket)
	}
	if b.n.Load() >= maxBuckets {
		return &b.overflow
	}
	found, had := b.byName.LoadOrStore(name, &bucket{last: now})
	if !had {
		b.n.Add(1)
	}
	return found.(*bucket)
}

// take is bucket.take for a name. A write without a name, or with a rate of 0, is not counted.
func (b *buckets) take(name string, now time.Time, p pressure, n int64, exempt bool) time.Duration {
	if name == "" || b.limit.Rate == 0 {
		return 0
	}
	current := b.limit.reduced(p.quota, p.throttling)
	for {
		if wait, ok := b.of(name, now).take(now, b.limit, current, n, exempt); ok {
			return wait
		}
	}
}

func (b *buckets) refund(name string, n int64) {
	if found, ok := b.byName.Load(name); ok {
		found.(*bucket).refund(n)
	}
}

// refill refills all buckets, and removes those that are full.
func (b *buckets) refill(now time.Time, p pressure) {
	current := b.limit.reduced(p.quota, p.throttling)
	b.byName.Range(func(name, value any) bool {
		one := value.(*bucket)
		one.mu.Lock()
		defer one.mu.Unlock()
		if one.refill(now, b.limit, current); one.used == 0 {
			one.removed = true
			b.byName.Delete(name)
			b.n.Add(-1)
		}
		return true
	})
}
