// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// lag measures how far the index is behind the store: the time until the watch
// shows what this server wrote. It waits for one transaction at a time, so that
// it costs next to nothing however many there are.
type lag struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// heard is the newest revision that the watch of sandboxes has shown.
	heard int64
	// awaited is the revision that was written at since; 0 is none.
	awaited int64
	since   time.Time
}

// wrote says that this server changed sandboxes at a revision. The watch may
// have been faster than etcd's answer.
func (l *lag) wrote(revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.heard >= revision:
		indexLag.Observe(0)
	case l.awaited == 0:
		l.awaited, l.since = revision, l.clock.Now()
	}
}

// hears says that the watch of sandboxes has come to a revision.
func (l *lag) hears(revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = max(l.heard, revision)
	if l.awaited != 0 && l.heard >= l.awaited {
		indexLag.Observe(l.clock.Since(l.since).Seconds())
		l.awaited = 0
	}
}

// hasHeardBeyond says whether the watch of sandboxes has come past a revision, and so
// has shown all that was written at it.
func (l *lag) hasHeardBeyond(revision int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard > revision
}

// behind is for how long the index has been waiting for what must come.
func (l *lag) behind() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaited == 0 {
		return 0
	}
	return l.clock.Since(l.since)
}
