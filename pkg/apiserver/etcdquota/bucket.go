// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

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
	// Below rejectFrom, every namespace and user keeps at least this burst, and below slowFrom at
	// least this rate, so that light writers are not throttled because of heavy ones.
	guaranteedBurst = 1 << 20
	guaranteedRate  = 64 << 10

	// exemptShare is the largest share of the current burst that exempt writes use, so that
	// controllers alone never throttle a namespace or user.
	exemptShare = 0.75

	// As soon as limits are reduced, a burst is at most 1/burstDivisor of etcd's quota, and a
	// rate at most 1/rateDivisor of it per second.
	burstDivisor, rateDivisor = 8, 256

	// shortestWait and longestWait bound the time after which a client is asked to retry.
	shortestWait = time.Second
	longestWait  = 30 * time.Second

	// maxBuckets bounds the number of buckets for namespaces, and for users. A full bucket is
	// removed. Names beyond that share one bucket.
	maxBuckets = 1 << 14
)

// throttled returns the limit that applies under pressure: at most a share of the quota, and at least
// the guaranteed minimum. Without throttling it returns l.
func (l Limit) throttled(p pressure) Limit {
	if p.throttling == 0 {
		return l
	}
	reduce := func(bytes, most, least int64) int64 {
		return max(int64(float64(min(bytes, most))*(1-p.throttling)), min(bytes, least))
	}
	rate := float64(reduce(l.Rate, p.quota/rateDivisor, guaranteedRate))
	return Limit{
		Rate:  max(1, int64(rate*min(1, (rejectFrom-p.used)/(rejectFrom-slowFrom)))),
		Burst: reduce(l.Burst, p.quota/burstDivisor, guaranteedBurst),
	}
}

// bucket is the token bucket of a namespace or user.
type bucket struct {
	mu sync.Mutex
	// used and exempt are the numbers of tokens that users' and exempt writes have taken and
	// that have not been refilled.
	used, exempt float64
	// last is when the bucket was last refilled.
	last time.Time
	// removed is set when the bucket is deleted from buckets.byName.
	removed bool
}

// refill adds the tokens for the time since the last call. It refills those taken by users' writes
// first. The caller must hold b.mu.
func (b *bucket) refill(now time.Time, current Limit) {
	elapsed := now.Sub(b.last)
	if elapsed <= 0 {
		return
	}
	tokens := float64(current.Rate) * elapsed.Seconds()
	b.exempt = max(0, b.exempt-max(0, tokens-b.used))
	b.used = max(0, b.used-tokens)
	b.last = now
}

// take takes n tokens, or takes none and returns how long to wait. It succeeds if at least one token
// is left, even if n is larger, so a write of any size can succeed. Exempt writes always succeed,
// but are counted only up to exemptShare of fullBurst, the burst without throttling. taken is what
// was counted. ok is false if the bucket was removed; the caller must then look up the name again.
func (b *bucket) take(now time.Time, current Limit, fullBurst, n int64, exempt bool) (taken bucketReservation, wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.removed {
		return bucketReservation{}, 0, false
	}
	b.refill(now, current)
	if exempt {
		taken = bucketReservation{bucket: b, exempt: max(0, min(float64(n), exemptShare*float64(fullBurst)-b.exempt))}
		b.exempt += taken.exempt
		return taken, 0, true
	}
	burst := float64(current.Burst)
	excess := b.used + min(b.exempt, exemptShare*burst) - burst
	if excess < 0 {
		b.used += float64(n)
		return bucketReservation{bucket: b, used: float64(n)}, 0, true
	}
	seconds := min(excess/float64(current.Rate), longestWait.Seconds())
	return bucketReservation{}, max(shortestWait, time.Duration(seconds*float64(time.Second))), true
}

// bucketReservation is the number of tokens that a write has taken from a bucket.
type bucketReservation struct {
	bucket       *bucket
	used, exempt float64
}

// cancel returns the tokens.
func (r bucketReservation) cancel() {
	if r.bucket == nil {
		return
	}
	r.bucket.mu.Lock()
	defer r.bucket.mu.Unlock()
	r.bucket.used = max(0, r.bucket.used-r.used)
	r.bucket.exempt = max(0, r.bucket.exempt-r.exempt)
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
func (b *buckets) take(name string, now time.Time, p pressure, n int64, exempt bool) (bucketReservation, time.Duration) {
	if name == "" || b.limit.Rate == 0 {
		return bucketReservation{}, 0
	}
	current := b.limit.throttled(p)
	for {
		if taken, wait, ok := b.of(name, now).take(now, current, b.limit.Burst, n, exempt); ok {
			return taken, wait
		}
	}
}

// refill refills all buckets, and removes those that are full.
func (b *buckets) refill(now time.Time, p pressure) {
	current := b.limit.throttled(p)
	b.byName.Range(func(name, value any) bool {
		one := value.(*bucket)
		one.mu.Lock()
		defer one.mu.Unlock()
		if one.refill(now, current); one.used == 0 && one.exempt == 0 {
			one.removed = true
			b.byName.Delete(name)
			b.n.Add(-1)
		}
		return true
	})
}
