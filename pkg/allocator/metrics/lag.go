// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Lag measures how far the index is behind the store: the time until the watch
// shows what this server wrote. It waits for one transaction at a time, so that
// it costs next to nothing however many there are.
type Lag struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// heard is the newest revision that the watch of sandboxes has shown.
	heard uint64
	// awaited is the revision that was written at since; 0 is none.
	awaited uint64
	since   time.Time
}

// NewLag returns a Lag of a server that has written nothing yet.
func NewLag(c clock.PassiveClock) *Lag { return &Lag{clock: c} }

// Expect records that this server changed sandboxes at a revision. The watch may
// have been faster than etcd's answer.
func (l *Lag) Expect(revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.heard >= revision:
		indexLag.Observe(0)
	case l.awaited == 0:
		l.awaited, l.since = revision, l.clock.Now()
	}
}

// Observe records that the watch of sandboxes has come to a revision.
func (l *Lag) Observe(revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = max(l.heard, revision)
	if l.awaited != 0 && l.heard >= l.awaited {
		indexLag.Observe(l.clock.Since(l.since).Seconds())
		l.awaited = 0
	}
}

// Behind is for how long the index has been waiting for what must come.
func (l *Lag) Behind() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaited == 0 {
		return 0
	}
	return l.clock.Since(l.since)
}
