// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// failures slows down sets whose template cannot start. Such a set would make
// sandboxes, remove them when they failed, and make new ones, as fast as the
// server can. While sandboxes of the current revision fail and none of them is
// available, the set pauses between rounds: a second, then two, four, ... up to a
// minute. The first sandbox that does become available ends that, and so does a
// change of the template.
type failures struct {
	mu   sync.Mutex
	sets map[types.NamespacedName]*failing
}

type failing struct {
	revision string
	pause    time.Duration
	until    time.Time
}

func newFailures() *failures {
	return &failures{sets: map[types.NamespacedName]*failing{}}
}

// look takes in what a reconcile found and returns how long the set must pause
// before it creates again.
func (f *failures) look(set types.NamespacedName, revision string, failed, available int, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sets[set]
	if s != nil && (s.revision != revision || available > 0) {
		delete(f.sets, set)
		s = nil
	}
	if failed == 0 || available > 0 {
		if s == nil {
			return 0
		}
		return max(s.until.Sub(now), 0)
	}
	if s == nil {
		s = &failing{revision: revision, pause: firstPause / 2}
		f.sets[set] = s
	}
	// Those that fail during a pause are of the round before it.
	if !now.Before(s.until) {
		s.pause = min(2*s.pause, maxPause)
		s.until = now.Add(s.pause)
	}
	return s.until.Sub(now)
}

// succeeded says that a sandbox of this revision has become available. A reconcile
// might never see that, if claims wait and take it at once.
func (f *failures) succeeded(set types.NamespacedName, revision string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sets[set]; s != nil && s.revision == revision {
		delete(f.sets, set)
	}
}

// forget drops all about a set that is gone.
func (f *failures) forget(set types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sets, set)
}
