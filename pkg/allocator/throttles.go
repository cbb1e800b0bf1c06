// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxThrottles is how many namespaces and users throttles remembers. A claim beyond that is
	// planned and rejected each time that it is tried.
	maxThrottles = 1 << 12
	// forgetThrottleAfter is how long after its time a throttle is forgotten if no claim has
	// succeeded since.
	forgetThrottleAfter = time.Minute
	// probePause is how soon a claim looks again while another one is trying.
	probePause = time.Second
)

// payer is whom a write counts for in the write limits. User is empty if it counts for the
// namespace alone.
type payer struct{ namespace, user string }

// throttles remembers until when claims of a payer exceed a write limit. Until then they are not
// planned and encoded, which would be in vain. After that one claim tries first, and the others
// follow at different times. It is safe for concurrent use, and all of it can be lost.
type throttles struct {
	// n is the length of byPayer: if nothing is throttled, a claim reads no more than this.
	n    atomic.Int64
	seed maphash.Seed

	mu      sync.Mutex
	byPayer map[payer]*throttled
}

// throttled is what is known of one payer.
type throttled struct {
	until time.Time
	// spread is the time over which the claims are spread after until.
	spread time.Duration
	// trying is the claim that tries after until; empty if none does.
	trying types.UID
}

func newThrottles() *throttles {
	return &throttles{seed: maphash.MakeSeed(), byPayer: map[payer]*throttled{}}
}

// left returns for how long a claim must not be tried. If it is 0, the caller calls done when the
// claim has been tried.
func (t *throttles) left(who payer, claim types.UID, now time.Time) time.Duration {
	if t.n.Load() == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.byPayer[who]
	switch {
	case known == nil:
		return 0
	case now.Before(known.until):
		return known.until.Sub(now) + t.share(claim, known.spread)
	case known.trying == "" || known.trying == claim:
		known.trying = claim
		return 0
	}
	return probePause + t.share(claim, max(known.spread, probePause))
}

// share returns the same part of a time each time for a claim, and different parts for different
// claims.
func (t *throttles) share(claim types.UID, of time.Duration) time.Duration {
	const parts = 1 << 10
	return of * time.Duration(maphash.String(t.seed, string(claim))%parts) / parts
}

// rejected records that a write was rejected, and may be tried again after a time.
func (t *throttles) rejected(who payer, retryAfter time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byPayer[who] == nil && len(t.byPayer) >= maxThrottles {
		return
	}
	t.byPayer[who] = &throttled{until: now.Add(retryAfter), spread: retryAfter}
	t.n.Store(int64(len(t.byPayer)))
}

// accepted records that a write that might have been rejected was not.
func (t *throttles) accepted(who payer) {
	if t.n.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byPayer, who)
	t.n.Store(int64(len(t.byPayer)))
}

// done records that a claim has been tried, whatever came of it. Another one may try then.
func (t *throttles) done(who payer, claim types.UID) {
	if t.n.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byPayer[who]; known != nil && known.trying == claim {
		known.trying = ""
	}
}

// forget forgets what is long over.
func (t *throttles) forget(now time.Time) {
	if t.n.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.byPayer, func(_ payer, known *throttled) bool { return now.Sub(known.until) >= forgetThrottleAfter })
	t.n.Store(int64(len(t.byPayer)))
}
