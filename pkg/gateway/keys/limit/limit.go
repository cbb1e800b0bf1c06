// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limit bounds how many requests an API key of the E2B API, and a team with all its
// keys, may send.
package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/pkg/gateway/keys"
)

const (
	// teamFactor is how many times what a key may do a team may do.
	teamFactor = 10
	// maxBuckets bounds the keys, and the teams, that are remembered. Who was forgotten
	// begins with a full bucket.
	maxBuckets = 16384
)

// Options are the limits of a key.
type Options struct {
	// Rate is how many requests a second it may send. Zero is no limit.
	Rate float64
	// Burst is how many it may send at once, at least one.
	Burst int
	// Clock tells the time.
	Clock clock.PassiveClock
}

// Limiter has a token bucket for each key, and one for each team.
type Limiter struct {
	options Options

	mu          sync.Mutex
	keys, teams *lru.Cache
}

// New returns a Limiter that knows nobody yet.
func New(options Options) *Limiter {
	options.Burst = max(options.Burst, 1)
	return &Limiter{options: options, keys: lru.New(maxBuckets), teams: lru.New(maxBuckets)}
}

// Allow reports whether a caller may send a request now. If not, it costs nothing, and
// retryAfter is when it is worth trying again.
func (l *Limiter) Allow(caller keys.Caller) (ok bool, retryAfter time.Duration) {
	if l.options.Rate <= 0 {
		return true, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.options.Clock.Now()
	key, team := l.bucket(l.keys, caller.KeyID, 1), l.bucket(l.teams, caller.Team, teamFactor)
	ofKey, ofTeam := key.ReserveN(now, 1), team.ReserveN(now, 1)
	wait := max(ofKey.DelayFrom(now), ofTeam.DelayFrom(now))
	if wait > 0 {
		ofTeam.CancelAt(now)
		ofKey.CancelAt(now)
		return false, wait
	}
	return true, 0
}

// bucket returns the bucket of a name. The lock is held.
func (l *Limiter) bucket(buckets *lru.Cache, name string, factor int) *rate.Limiter {
	if bucket, ok := buckets.Get(name); ok {
		return bucket.(*rate.Limiter)
	}
	bucket := rate.NewLimiter(rate.Limit(l.options.Rate*float64(factor)), l.options.Burst*factor)
	buckets.Add(name, bucket)
	return bucket
}
