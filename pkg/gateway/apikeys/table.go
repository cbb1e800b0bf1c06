// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// watchPatience is how long the table is used without contact with the watch.
	watchPatience = 30 * time.Second
	// foundTTL and missingTTL are how long the result of a read by name is cached: a key, and none.
	foundTTL   = 5 * time.Second
	missingTTL = time.Second
	// maxAnswers and maxDeletedHere limit how many results and ids are kept.
	maxAnswers     = 8192
	maxDeletedHere = 8192
)

// table is what a replica knows of keys. The reflector writes what the watch reports, and Secrets what it
// has read, created or deleted itself.
type table struct {
	clock clock.PassiveClock

	mu sync.RWMutex
	// watched are the keys that the watch has reported, by id.
	watched map[string]Key
	// lastContact is the time of the last event or request of the watch, zero before the first.
	lastContact time.Time
	// deletedHere are ids of keys that this replica has deleted: an old event does not bring them back.
	// No id is used twice.
	deletedHere *lru.Cache
	// removals counts the keys that were removed. A result that was read before a removal is not
	// cached: it may be the key that was removed.
	removals uint64
	answers  *cache.LRUExpireCache
}

// answer is the result of a read by name: a key, or ErrNotFound.
type answer struct {
	key Key
	err error
}

func newTable(clk clock.PassiveClock) *table {
	return &table{clock: clk, watched: map[string]Key{}, deletedHere: lru.New(maxDeletedHere), answers: cache.NewLRUExpireCacheWithClock(maxAnswers, clk)}
}

// lookup returns the key of an id from the watch, if the table is fresh, or else the cached result of a
// read. ok is false if there is neither.
func (t *table) lookup(id string) (found answer, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if key, ok := t.watched[id]; ok && t.isFreshLocked() {
		return answer{key: key}, true
	}
	if found, ok := t.answers.Get(id); ok {
		return found.(answer), true
	}
	return answer{}, false
}

// isFreshLocked reports whether there was contact with the watch lately. The lock is held.
func (t *table) isFreshLocked() bool {
	return !t.lastContact.IsZero() && t.clock.Since(t.lastContact) <= watchPatience
}

// isFresh reports whether there was contact with the watch lately.
func (t *table) isFresh() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.isFreshLocked()
}

// isWatched reports whether the watch has reported a key, even if the table is not fresh.
func (t *table) isWatched(id string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.watched[id]
	return ok
}

// removalCount returns the number of removals, for a later cacheRead.
func (t *table) removalCount() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.removals
}

// cacheRead caches the result of a read, unless a key was removed since the read started. removals is the
// removalCount of that time.
func (t *table) cacheRead(id string, found answer, removals uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, gone := t.deletedHere.Get(id); gone || removals != t.removals {
		return
	}
	ttl := foundTTL
	if found.err != nil {
		ttl = missingTTL
	}
	t.answers.Add(id, found, ttl)
}

// onLocalDelete removes a key that this replica has deleted.
func (t *table) onLocalDelete(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deletedHere.Add(id, nil)
	t.removeLocked(id)
}

// removeLocked removes a key. The lock is held.
func (t *table) removeLocked(id string) {
	t.removals++
	delete(t.watched, id)
	t.answers.Remove(id)
}

// onWatchDelete removes a key whose end the watch reports.
func (t *table) onWatchDelete(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastContact = t.clock.Now()
	t.removeLocked(id)
}

// put adds a key that the watch reports.
func (t *table) put(key Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastContact = t.clock.Now()
	t.addLocked(key)
}

// addLocked adds a key, unless this replica has deleted it. The lock is held.
func (t *table) addLocked(key Key) {
	if _, gone := t.deletedHere.Get(key.ID); !gone {
		t.watched[key.ID] = key
	}
	t.answers.Remove(key.ID)
}

// replace replaces all keys by those of a list.
func (t *table) replace(all []Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastContact = t.clock.Now()
	t.removals++
	t.answers = cache.NewLRUExpireCacheWithClock(maxAnswers, t.clock)
	t.watched = make(map[string]Key, len(all))
	for _, key := range all {
		t.addLocked(key)
	}
}

// alive is called when the watch is opened or sends a bookmark. It comes after a list.
func (t *table) alive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastContact = t.clock.Now()
}

// listed reports whether all keys have been listed once.
func (t *table) listed() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return !t.lastContact.IsZero()
}
