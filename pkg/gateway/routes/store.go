// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

const (
	// readAheadFor is how long a sandbox that was read counts before the watch has reported it.
	readAheadFor = 10 * time.Second
	// maxReadAhead is how many of those are kept.
	maxReadAhead = 1024
)

// store has the sandboxes that a reflector has reported, and those that were read before the reflector
// reported them.
type store struct {
	clock       clock.PassiveClock
	connections *sandboxproxy.Connections

	lock    sync.RWMutex
	watched entries
	// watchVersion is the resourceVersion up to which the watch has reported everything.
	watchVersion uint64
	synced       bool
	// readAhead are the sandboxes that were read from the API server, by id. They are newer than
	// watchVersion.
	readAhead map[string]readAheadEntry
}

// entries are sandboxes by id and by UID.
type entries struct {
	byID  map[string]*entry
	byUID map[types.UID]*entry
}

func newEntries(n int) entries {
	return entries{make(map[string]*entry, n), make(map[types.UID]*entry, n)}
}

type readAheadEntry struct {
	*entry
	until time.Time
}

var (
	_ cache.ReflectorStore         = &store{}
	_ cache.ReflectorBookmarkStore = &store{}
	_ cache.ResourceVersionUpdater = &store{}
)

func newStore(clock clock.PassiveClock, connections *sandboxproxy.Connections) *store {
	return &store{clock: clock, connections: connections, watched: newEntries(0), readAhead: map[string]readAheadEntry{}}
}

// find returns the route of an id: the later of what the watch has reported and what was read.
func (s *store) find(id string) (Route, bool) {
	now := s.clock.Now()
	s.lock.RLock()
	defer s.lock.RUnlock()
	e := s.watched.byID[id]
	if early, ok := s.readAhead[id]; ok && now.Before(early.until) && (e == nil || early.precedence.Version > e.precedence.Version) {
		e = early.entry
	}
	if e == nil {
		return Route{}, false
	}
	return e.route(now), true
}

// addRead keeps a sandbox that was read, for a while. It does nothing if the watch has already reported
// everything up to that version.
func (s *store) addRead(e *entry) {
	now := s.clock.Now()
	s.lock.Lock()
	defer s.lock.Unlock()
	if e.precedence.Version <= s.watchVersion {
		return
	}
	if len(s.readAhead) >= maxReadAhead {
		maps.DeleteFunc(s.readAhead, func(_ string, old readAheadEntry) bool { return !now.Before(old.until) })
	}
	if len(s.readAhead) < maxReadAhead {
		s.readAhead[e.id] = readAheadEntry{entry: e, until: now.Add(readAheadFor)}
	}
}

func (s *store) len() int {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return len(s.watched.byID)
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
		s.watched.remove(e.uid)
		s.watched.put(e)
	})
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	return s.with(obj, func(e *entry) { s.watched.remove(e.uid) })
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objects []any, resourceVersion string) error {
	version, err := s.replace(objects, resourceVersion)
	if err == nil {
		s.connections.Retain(version, s.exists)
	}
	return err
}

func (s *store) replace(objects []any, resourceVersion string) (version uint64, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.watched = newEntries(len(objects))
	for _, obj := range objects {
		e, ok := obj.(*entry)
		if !ok {
			return 0, fmt.Errorf("got a %T in a list of sandboxes", obj)
		}
		s.watched.put(e)
	}
	s.synced = true
	return s.advance(resourceVersion)
}

// exists reports whether the watch knows a sandbox.
func (s *store) exists(uid types.UID) bool {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return s.watched.byUID[uid] != nil
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
	_, _ = s.advance(resourceVersion) // a version that cannot be read advances nothing
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

func (es entries) put(e *entry) {
	if e.id == "" {
		return
	}
	es.byUID[e.uid] = e
	if e.winsOver(es.byID[e.id]) {
		es.byID[e.id] = e
	}
}

func (es entries) remove(uid types.UID) {
	old := es.byUID[uid]
	delete(es.byUID, uid)
	if old != nil && es.byID[old.id] == old {
		delete(es.byID, old.id)
	}
}

// advance sets watchVersion, and removes what was read up to that version. It returns the version as a
// number.
func (s *store) advance(resourceVersion string) (uint64, error) {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q of sandboxes is no number: %w", resourceVersion, err)
	}
	s.watchVersion = max(s.watchVersion, version)
	maps.DeleteFunc(s.readAhead, func(_ string, e readAheadEntry) bool { return e.precedence.Version <= s.watchVersion })
	return version, nil
}
