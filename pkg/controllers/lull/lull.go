// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lull tells background work about a SandboxSet when claims on it pause.
// What follows a claim (its replacement, labels of its Pod) costs the cluster
// several times what the claim does, and on the same processors and disks. A claim
// has somebody waiting for it, so its wake comes when the storm is over.
package lull

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Patience is the longest time that work waits for claims to pause: those that go
// on for longer have it beside them.
const Patience = 5 * time.Second

// Lull knows which sets claims take from. It is safe for concurrent use.
type Lull struct {
	quiet time.Duration

	mu     sync.Mutex
	storms map[types.NamespacedName]storm
}

// storm is the first and the last take without a pause between them.
type storm struct{ began, last time.Time }

// New returns a Lull to which claims pause when none takes from a set for the quiet
// period. With none, they always do.
func New(quiet time.Duration) *Lull {
	return &Lull{quiet: quiet, storms: map[types.NamespacedName]storm{}}
}

// Took says that a claim took a sandbox out of a set's pool.
func (l *Lull) Took(set types.NamespacedName, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.storms[set]
	if !ok || now.Sub(s.last) >= l.quiet {
		s.began = now
	}
	s.last = now
	l.storms[set] = s
}

// Wait returns for how long work about a set should wait, unless more claims come;
// 0 is not at all.
func (l *Lull) Wait(set types.NamespacedName, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.storms[set]
	if !ok {
		return 0
	}
	over := s.last.Add(l.quiet)
	if !now.Before(over) {
		delete(l.storms, set)
		return 0
	}
	if limit := s.began.Add(Patience); limit.Before(over) {
		over = limit
	}
	return max(over.Sub(now), 0)
}

// Forget drops all about a set that is gone.
func (l *Lull) Forget(set types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.storms, set)
}

// Running says whether claims take from a set, for however long they have.
func (l *Lull) Running(set types.NamespacedName, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.storms[set]
	return ok && now.Sub(s.last) < l.quiet
}
