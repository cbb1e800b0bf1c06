// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quietperiod delays background work about a SandboxSet until claims on the
// set pause. What follows a claim (its replacement, labels of its Pod) costs the cluster
// several times what the claim does, and on the same processors and disks. A user waits
// for the claim, so the rest comes when no claim has come for a quiet period.
package quietperiod

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// MaxWait is the longest time that work waits for claims to pause: work about a set
// whose claims continue for longer is done beside them.
const MaxWait = 5 * time.Second

// ClaimActivity is the time of the claims on one set without a quiet period between them. Its
// zero value is that of a set without claims.
type ClaimActivity struct{ began, last time.Time }

// Claimed records that a claim took a sandbox out of the set's pool.
func (b *ClaimActivity) Claimed(quiet time.Duration, now time.Time) {
	if !b.IsActive(quiet, now) {
		b.began = now
	}
	b.last = now
}

// IsActive reports whether claims have not paused for a quiet period yet.
func (b *ClaimActivity) IsActive(quiet time.Duration, now time.Time) bool {
	return !b.last.IsZero() && now.Sub(b.last) < quiet
}

// Wait returns for how long work about the set should wait, unless more claims come;
// 0 is not at all.
func (b *ClaimActivity) Wait(quiet time.Duration, now time.Time) time.Duration {
	if !b.IsActive(quiet, now) {
		return 0
	}
	return max(min(b.last.Add(quiet).Sub(now), b.began.Add(MaxWait).Sub(now)), 0)
}

// Tracker knows on which sets claims have not paused. It is safe for concurrent use.
type Tracker struct {
	quiet time.Duration

	mu sync.Mutex
	// current has the sets that were claimed from since rotated, and previous those that were
	// last claimed from in the period before. Claims on other sets have paused.
	current, previous map[types.NamespacedName]*ClaimActivity
	rotated           time.Time
}

// New returns a Tracker by which claims pause when none takes from a set for the quiet
// period. With a period of 0 nothing waits.
func New(quiet time.Duration) *Tracker {
	return &Tracker{quiet: quiet, current: map[types.NamespacedName]*ClaimActivity{}}
}

// Claimed records that a claim took a sandbox out of a set's pool.
func (t *Tracker) Claimed(set types.NamespacedName, now time.Time) {
	if t.quiet == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rotate(now)
	b := t.activityOf(set)
	if b == nil {
		b = &ClaimActivity{}
	}
	b.Claimed(t.quiet, now)
	t.current[set] = b
	delete(t.previous, set)
}

// rotate forgets sets on which claims have paused, also those for which Wait is never called. It
// drops a whole map at a time, at most once in a quiet period.
func (t *Tracker) rotate(now time.Time) {
	since := now.Sub(t.rotated)
	if since < t.quiet {
		return
	}
	t.previous = t.current
	if since >= 2*t.quiet {
		t.previous = nil
	}
	t.current, t.rotated = map[types.NamespacedName]*ClaimActivity{}, now
}

// activityOf returns the claims on a set; nil if they have paused.
func (t *Tracker) activityOf(set types.NamespacedName) *ClaimActivity {
	if b := t.current[set]; b != nil {
		return b
	}
	return t.previous[set]
}

// Wait returns for how long work about a set should wait, unless more claims come;
// 0 is not at all.
func (t *Tracker) Wait(set types.NamespacedName, now time.Time) time.Duration {
	if t.quiet == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rotate(now)
	if b := t.activityOf(set); b != nil {
		return b.Wait(t.quiet, now)
	}
	return 0
}
