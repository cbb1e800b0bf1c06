// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quietperiod delays background work about a SandboxSet until claims on the
// set pause. What follows a claim (its replacement, labels of its Pod) costs the cluster
// several times what the claim does, and on the same processors and disks. A user waits
// for the claim, so the rest comes when the burst of claims is over.
package quietperiod

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// MaxWait is the longest time that work waits for a burst to end: work about a set
// whose claims go on for longer is done beside them.
const MaxWait = 5 * time.Second

// Burst is the claims on one set without a quiet period between them. Its zero value
// is of a set without claims.
type Burst struct{ began, last time.Time }

// Claimed records that a claim took a sandbox out of the set's pool.
func (b *Burst) Claimed(quiet time.Duration, now time.Time) {
	if !b.Lasts(quiet, now) {
		b.began = now
	}
	b.last = now
}

// Lasts reports whether the burst goes on, for however long it has.
func (b *Burst) Lasts(quiet time.Duration, now time.Time) bool {
	return !b.last.IsZero() && now.Sub(b.last) < quiet
}

// Wait returns for how long work about the set should wait, unless more claims come;
// 0 is not at all.
func (b *Burst) Wait(quiet time.Duration, now time.Time) time.Duration {
	if !b.Lasts(quiet, now) {
		return 0
	}
	return max(min(b.last.Add(quiet).Sub(now), b.began.Add(MaxWait).Sub(now)), 0)
}

// Tracker knows which sets have a burst of claims. It is safe for concurrent use.
type Tracker struct {
	quiet time.Duration

	mu sync.Mutex
	// bursts are the bursts of sets that were claimed from since rotated, and previous those of
	// sets that were last claimed from in the period before. Older bursts are over.
	bursts, previous map[types.NamespacedName]*Burst
	rotated          time.Time
}

// New returns a Tracker by which a burst ends when no claim takes from a set for the
// quiet period. With a period of 0 there are no bursts.
func New(quiet time.Duration) *Tracker {
	return &Tracker{quiet: quiet, bursts: map[types.NamespacedName]*Burst{}}
}

// Claimed records that a claim took a sandbox out of a set's pool.
func (t *Tracker) Claimed(set types.NamespacedName, now time.Time) {
	if t.quiet == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rotate(now)
	b := t.of(set)
	if b == nil {
		b = &Burst{}
	}
	b.Claimed(t.quiet, now)
	t.bursts[set] = b
	delete(t.previous, set)
}

// rotate forgets bursts that are over, also those for which Wait is never called. It drops a whole
// map at a time, at most once in a quiet period.
func (t *Tracker) rotate(now time.Time) {
	since := now.Sub(t.rotated)
	if since < t.quiet {
		return
	}
	t.previous = t.bursts
	if since >= 2*t.quiet {
		t.previous = nil
	}
	t.bursts, t.rotated = map[types.NamespacedName]*Burst{}, now
}

// of returns the burst of a set; nil if there is none.
func (t *Tracker) of(set types.NamespacedName) *Burst {
	if b := t.bursts[set]; b != nil {
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
	if b := t.of(set); b != nil {
		return b.Wait(t.quiet, now)
	}
	return 0
}
