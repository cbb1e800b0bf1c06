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

// Tracker knows which sets have a burst of claims. It is safe for concurrent use.
type Tracker struct {
	quiet time.Duration

	mu     sync.Mutex
	bursts map[types.NamespacedName]burst
}

// burst is the first and the last claim without a quiet period between them.
type burst struct{ began, last time.Time }

// New returns a Tracker by which a burst ends when no claim takes from a set for the
// quiet period. With a period of 0 there are no bursts.
func New(quiet time.Duration) *Tracker {
	return &Tracker{quiet: quiet, bursts: map[types.NamespacedName]burst{}}
}

// Claimed records that a claim took a sandbox out of a set's pool.
func (t *Tracker) Claimed(set types.NamespacedName, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, ok := t.bursts[set]
	if !ok || now.Sub(b.last) >= t.quiet {
		b.began = now
	}
	b.last = now
	t.bursts[set] = b
}

// Wait returns for how long work about a set should wait, unless more claims come;
// 0 is not at all.
func (t *Tracker) Wait(set types.NamespacedName, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, ok := t.bursts[set]
	if !ok {
		return 0
	}
	over := b.last.Add(t.quiet)
	if !now.Before(over) {
		delete(t.bursts, set)
		return 0
	}
	if limit := b.began.Add(MaxWait); limit.Before(over) {
		over = limit
	}
	return max(over.Sub(now), 0)
}

// Forget drops what is known about a set that is gone.
func (t *Tracker) Forget(set types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.bursts, set)
}

// InBurst reports whether a set has a burst of claims, for however long.
func (t *Tracker) InBurst(set types.NamespacedName, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, ok := t.bursts[set]
	return ok && now.Sub(b.last) < t.quiet
}
