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
	// Below fullFrom, every namespace and user keeps at least this burst and this rate, so that
	// light writers are not throttled because of heavy ones.
	lightBurst = 1 << 20
	lightRate  = 64 << 10

	// exemptShare is the largest share of the current burst that exempt writes use, so that
	// controllers alone never throttle a namespace or user.
	exemptShare = 0.75

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

// rate returns the refill rate in bytes per second under the current limit.
func (l Limit) rate(current Limit) float64 {
	return max(float64(current.Rate), min(float64(l.Rate), lightRate))
}

// burst returns the size of the bucket under the current limit.
func (l Limit) burst(current Limit) float64 {
	return max(float64(current.Burst), min(float64(l.Burst), lightBurst))
}

// bucket is the token bucket of a namespace or user.
type bucket struct {
	mu sync.Mutex
	// used and exempt are the numbers of tokens that users' and exempt writes have taken and
	// that have not been refilled.
	used, exempt float64
	// last is when the bucket was last refilled.
	last time.Time
	// removed means that another bucket may have taken the place of this one.
	removed bool
}

// refill adds the tokens for the time since the last call, first those of users' writes. The
// caller holds b.mu.
func (b *bucket) refill(now time.Time, l, current Limit) {
	elapsed := now.Sub(b.last)
	if elapsed <= 0 {
		return
	}
	tokens := l.rate(current) * elapsed.Seconds()
	b.exempt = max(0, b.exempt-max(0, tokens-b.used))
	b.used = max(0, b.used-tokens)
	b.last = now
}

// take takes n tokens and returns 0, or takes none and returns when to retry. As long as any
// token is left it takes n of any size, and more tokens than the burst may be taken then. Exempt
// writes always succeed, but count only as far as exemptShare. taken is what was counted. ok is
// false if the bucket was removed; nothing is taken then.
func (b *bucket) take(now time.Time, l, current Limit, n int64, exempt bool) (taken charge, wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.removed {
		return charge{}, 0, false
	}
	b.refill(now, l, current)
	if exempt {
		taken = charge{bucket: b, exempt: max(0, min(float64(n), exemptShare*float64(l.Burst)-b.exempt))}
		b.exempt += taken.exempt
		return taken, 0, true
	}
	burst := l.burst(current)
	excess := b.used + min(b.exempt, exemptShare*burst) - burst
	if excess < 0 {
		b.used += float64(n)
		return charge{bucket: b, used: float64(n)}, 0, true
	}
	seconds := min(excess/l.rate(current), longestWait.Seconds())
	return charge{}, max(shortestWait, time.Duration(seconds*float64(time.Second))), true
}

// charge is the number of tokens that a write has taken from a bucket.
type charge struct {
	bucket       *bucket
	used, exempt float64
}

// refund returns the tokens.
func (c charge) refund() {
	if c.bucket == nil {
		return
	}
	c.bucket.mu.Lock()
	defer c.bucket.mu.Unlock()
	c.bucket.used = max(0, c.bucket.used-c.used)
	c.bucket.exempt = max(0, c.bucket.exempt-c.exempt)
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
func (b *buckets) take(name string, now time.Time, p pressure, n int64, exempt bool) (charge, time.Duration) {
	if name == "" || b.limit.Rate == 0 {
		return charge{}, 0
	}
	current := b.limit.reduced(p.quota, p.throttling)
	for {
		if taken, wait, ok := b.of(name, now).take(now, b.limit, current, n, exempt); ok {
			return taken, wait
		}
	}
}

// refill refills all buckets, and removes those that are full.
func (b *buckets) refill(now time.Time, p pressure) {
	current := b.limit.reduced(p.quota, p.throttling)
	b.byName.Range(func(name, value any) bool {
		one := value.(*bucket)
		one.mu.Lock()
		defer one.mu.Unlock()
		if one.refill(now, b.limit, current); one.used == 0 && one.exempt == 0 {
			one.removed = true
			b.byName.Delete(name)
			b.n.Add(-1)
		}
		return true
	})
}
