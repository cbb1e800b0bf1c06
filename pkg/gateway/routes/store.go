// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// earlyFor is how long what was read through counts without being reported by the watch.
	earlyFor = 10 * time.Second
	// maxEarly is how many of those are kept.
	maxEarly = 1024
)

// store is what a reflector has told, and what was read before that told it.
type store struct {
	clock clock.PassiveClock

	lock  sync.RWMutex
	byID  map[string]*entry
	byUID map[types.UID]*entry
	// seen is the resourceVersion up to which the watch has told everything.
	seen   uint64
	synced bool
	// early are newer than seen.
	early map[string]earlyEntry
}

type earlyEntry struct {
	*entry
	until time.Time
}

var (
	_ cache.ReflectorStore         = &store{}
	_ cache.ReflectorBookmarkStore = &store{}
	_ cache.ResourceVersionUpdater = &store{}
)

func newStore(clock clock.PassiveClock) *store {
	return &store{clock: clock, byID: map[string]*entry{}, byUID: map[types.UID]*entry{}, early: map[string]earlyEntry{}}
}

// find returns the route of an id, from the later of what the watch told and what was read.
func (s *store) find(id string) (Route, bool) {
	now := s.clock.Now()
	s.lock.RLock()
	defer s.lock.RUnlock()
	e := s.byID[id]
	if early, ok := s.early[id]; ok && now.Before(early.until) && (e == nil || early.version > e.version) {
		e = early.entry
	}
	if e == nil {
		return Route{}, false
	}
	return e.route(now), true
}

// offer keeps for a while what was read, unless the watch has come as far: then it knows
// better.
func (s *store) offer(e *entry) {
	now := s.clock.Now()
	s.lock.Lock()
	defer s.lock.Unlock()
	if e.version <= s.seen {
		return
	}
	if len(s.early) >= maxEarly {
		s.dropEarly(func(old earlyEntry) bool { return !now.Before(old.until) })
	}
	if len(s.early) < maxEarly {
		s.early[e.id] = earlyEntry{entry: e, until: now.Add(earlyFor)}
	}
}

func (s *store) len() int {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return len(s.byID)
}

func (s *store) hasSynced() bool {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return s.synced
}

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error {
	return s.with(obj, func(e *entry) {
		s.remove(e.uid)
		s.put(e)
	})
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	return s.with(obj, func(e *entry) { s.remove(e.uid) })
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objects []any, resourceVersion string) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.byID, s.byUID = make(map[string]*entry, len(objects)), make(map[types.UID]*entry, len(objects))
	for _, obj := range objects {
		e, ok := obj.(*entry)
		if !ok {
			return fmt.Errorf("got a %T in a list of sandboxes", obj)
		}
		s.put(e)
	}
	s.synced = true
	return s.advance(resourceVersion)
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore. The reflector calls
// UpdateResourceVersion as well.
func (s *store) Bookmark(string) error { return nil }

// UpdateResourceVersion implements cache.ResourceVersionUpdater.
func (s *store) UpdateResourceVersion(resourceVersion string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	_ = s.advance(resourceVersion) // a version that cannot be read advances nothing
}

func (s *store) with(obj any, change func(e *entry)) error {
	e, ok := obj.(*entry)
	if !ok {
		return fmt.Errorf("got a %T from a watch of sandboxes", obj)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	change(e)
	return nil
}

func (s *store) put(e *entry) {
	if e.id == "" {
		return
	}
	s.byUID[e.uid] = e
	if e.precedes(s.byID[e.id]) {
		s.byID[e.id] = e
	}
}

func (s *store) remove(uid types.UID) {
	old := s.byUID[uid]
	delete(s.byUID, uid)
	if old != nil && s.byID[old.id] == old {
		delete(s.byID, old.id)
	}
}

// advance notes how far the watch has told, and forgets what was read before that.
func (s *store) advance(resourceVersion string) error {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("resourceVersion %q of sandboxes is no number: %w", resourceVersion, err)
	}
	s.seen = max(s.seen, version)
	s.dropEarly(func(e earlyEntry) bool { return e.version <= s.seen })
	return nil
}

func (s *store) dropEarly(drop func(earlyEntry) bool) {
	for id, e := range s.early {
		if drop(e) {
			delete(s.early, id)
		}
	}
}
