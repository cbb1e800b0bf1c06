// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// Limiters are token buckets, one for each key. They are safe for concurrent use.
type Limiters struct {
	limit rate.Limit
	burst int

	lock sync.Mutex
	// byKey are *rate.Limiter.
	byKey *lru.Cache
}

// NewLimiters returns limiters for a number of keys, each with a limit and a burst of its own.
// When there are more keys, the one that was not used for longest is forgotten, and begins with
// a full bucket.
func NewLimiters(keys int, limit rate.Limit, burst int) *Limiters {
	return &Limiters{limit: limit, burst: burst, byKey: lru.New(keys)}
}

// Of returns the limiter of a key.
func (l *Limiters) Of(key string) *rate.Limiter {
	l.lock.Lock()
	defer l.lock.Unlock()
	if found, ok := l.byKey.Get(key); ok {
		return found.(*rate.Limiter)
	}
	limiter := rate.NewLimiter(l.limit, l.burst)
	l.byKey.Add(key, limiter)
	return limiter
}

// Len returns the number of keys that are remembered.
func (l *Limiters) Len() int { return l.byKey.Len() }
