// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"hash/maphash"
	"time"

	"golang.org/x/time/rate"
)

// sharedLimiters is how many token buckets SharedLimiters have.
const sharedLimiters = 64

// SharedLimiters are a fixed number of token buckets. The hash of a key says which one it uses, so two
// keys may share one. Unlike those of Limiters, a bucket is never forgotten: more keys do not make it
// full again. They are safe for concurrent use.
type SharedLimiters struct {
	seed   maphash.Seed
	limits [sharedLimiters]*rate.Limiter
}

// NewSharedLimiters returns token buckets with a limit and a burst each.
func NewSharedLimiters(limit rate.Limit, burst int) *SharedLimiters {
	l := &SharedLimiters{seed: maphash.MakeSeed()}
	for i := range l.limits {
		l.limits[i] = rate.NewLimiter(limit, burst)
	}
	return l
}

// Allow takes a token from the bucket of a key, and reports whether there was one.
func (l *SharedLimiters) Allow(key string, now time.Time) bool {
	return l.limits[maphash.String(l.seed, key)%sharedLimiters].AllowN(now, 1)
}
