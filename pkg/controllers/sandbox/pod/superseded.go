// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// supersededTTL is how long the cache may take to show a write. After that it is
// believed again: the server may have been restored from before the write.
const supersededTTL = time.Minute

// superseded remembers the versions of sandboxes that this controller's own writes
// replaced. As long as the cache shows one of them, what it shows is known to be
// old, and to judge by it does harm: a sandbox that runs would be taken for one
// that starts, and get a second pod. There is an event on its way.
type superseded struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	versions map[types.NamespacedName]replaced
}

type replaced struct {
	versions []string // one reconcile may write thrice
	until    time.Time
}

func newSuperseded(c clock.PassiveClock) *superseded {
	return &superseded{clock: c, versions: map[types.NamespacedName]replaced{}}
}

// wrote says that a write over one version was answered with another. The same
// version means that nothing changed, and that no event comes.
func (s *superseded) wrote(key types.NamespacedName, over, answer string) {
	if over == answer {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[key] = replaced{
		versions: append(s.versions[key].versions, over),
		until:    s.clock.Now().Add(supersededTTL),
	}
}

// left is how long to wait for something newer than this version of a sandbox; 0
// is not at all, and then nothing is remembered any more.
func (s *superseded) left(key types.NamespacedName, version string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.versions[key]
	if !ok {
		return 0
	}
	left := r.until.Sub(s.clock.Now())
	if left <= 0 || !slices.Contains(r.versions, version) {
		delete(s.versions, key)
		return 0
	}
	return left
}

// forget drops what is remembered of a sandbox.
func (s *superseded) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.versions, key)
}
