// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package throttles delays the claims of a namespace and user whose writes the write limits reject.
package throttles

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxThrottles is how many namespaces and users Throttles remembers. Claims of further
	// namespaces and users are planned and rejected on every try.
	maxThrottles = 1 << 12
	// throttleTTL is how long a throttle is kept after it has ended, if no claim has succeeded
	// since.
	throttleTTL = time.Minute
	// probePause is the shortest delay of a claim while another claim with the same Key is
	// being tried.
	probePause = time.Second
)

// Key is the namespace and user that a write counts for. User is empty if the write counts for
// the namespace only.
type Key struct{ Namespace, User string }

// Throttles records how long the claims of a Key are throttled. Until then they are not
// planned, because the write would be rejected. Then one claim is tried first, and the others
// follow at different times. It is safe for concurrent use. Its state is only an optimization and
// can be lost.
type Throttles struct {
	// n is the length of byKey: if nothing is throttled, a claim reads no more than this.
	n    atomic.Int64
	seed maphash.Seed

	mu    sync.Mutex
	byKey map[Key]*throttled
}

// throttled is the state of one Key.
type throttled struct {
	until time.Time
	// spread is the time over which the claims are spread after until.
	spread time.Duration
	// probing is the claim that is being tried after until; empty if there is none.
	probing types.UID
}

// New returns Throttles without any.
func New() *Throttles {
	return &Throttles{seed: maphash.MakeSeed(), byKey: map[Key]*throttled{}}
}

// Delay returns how long a claim must wait before it is tried. If it returns 0, the caller must call
// Done after it has tried the claim.
func (t *Throttles) Delay(key Key, claim types.UID, now time.Time) time.Duration {
	if t.IsEmpty() {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.byKey[key]
	switch {
	case known == nil:
		return 0
	case now.Before(known.until):
		return known.until.Sub(now) + t.jitter(claim, known.spread)
	case known.probing == "" || known.probing == claim:
		known.probing = claim
		return 0
	}
	return probePause + t.jitter(claim, max(known.spread, probePause))
}

// jitter returns a duration from 0 to d that depends only on the claim.
func (t *Throttles) jitter(claim types.UID, d time.Duration) time.Duration {
	const parts = 1 << 10
	return d * time.Duration(maphash.String(t.seed, string(claim))%parts) / parts
}

// Rejected records that a write was rejected, and how long to wait before the retry.
func (t *Throttles) Rejected(key Key, retryAfter time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byKey[key] == nil && len(t.byKey) >= maxThrottles {
		return
	}
	t.byKey[key] = &throttled{until: now.Add(retryAfter), spread: retryAfter}
	t.n.Store(int64(len(t.byKey)))
}

// Accepted records that a write was accepted, and ends the throttle.
func (t *Throttles) Accepted(key Key) {
	if t.IsEmpty() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byKey, key)
	t.n.Store(int64(len(t.byKey)))
}

// Done records that a claim has been tried, with any result. Another claim may then be tried.
func (t *Throttles) Done(key Key, claim types.UID) {
	if t.IsEmpty() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byKey[key]; known != nil && known.probing == claim {
		known.probing = ""
	}
}

// IsEmpty reports whether nothing is throttled.
func (t *Throttles) IsEmpty() bool { return t.n.Load() == 0 }

// RemoveExpired removes throttles that ended throttleTTL ago.
func (t *Throttles) RemoveExpired(now time.Time) {
	if t.IsEmpty() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.byKey, func(_ Key, known *throttled) bool { return now.Sub(known.until) >= throttleTTL })
	t.n.Store(int64(len(t.byKey)))
}
