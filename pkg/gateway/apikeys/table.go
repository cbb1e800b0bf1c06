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
	// watchPatience is how long the table is believed without a sign of life of the watch.
	watchPatience = 30 * time.Second
	// believed and denied are how long the answer to a read by name is, for a key and for
	// none.
	believed = 5 * time.Second
	denied   = time.Second
	// maxAnswers and maxBuried bound what is remembered.
	maxAnswers = 8192
	maxBuried  = 8192
)

// table is what a replica knows of keys. The reflector writes what the watch tells, and
// Secrets what was read or done by itself.
type table struct {
	clock clock.PassiveClock

	mu sync.RWMutex
	// seen is what the watch has told, by id.
	seen map[string]Stored
	// sign is the last sign of life of the watch, zero before the first.
	sign time.Time
	// buried are ids of keys that were deleted here: an old event does not bring them back.
	// No id is used twice.
	buried *lru.Cache
	// removals grows with each key that goes. What was read before is then forgotten, and
	// what is being read not remembered: it may be the one that has gone.
	removals uint64
	answers  *cache.LRUExpireCache
}

// answer is what a read by name has come to: a key, or ErrNotFound.
type answer struct {
	key Stored
	err error
}

func newTable(clk clock.PassiveClock) *table {
	return &table{clock: clk, seen: map[string]Stored{}, buried: lru.New(maxBuried), answers: cache.NewLRUExpireCacheWithClock(maxAnswers, clk)}
}

// lookup returns what can be believed of a key. ok is false if that is nothing.
func (t *table) lookup(id string) (found answer, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if key, ok := t.seen[id]; ok && t.fresh() {
		return answer{key: key}, true
	}
	if found, ok := t.answers.Get(id); ok {
		return found.(answer), true
	}
	return answer{}, false
}

// fresh reports whether the watch has given a sign of life lately. The lock is held.
func (t *table) fresh() bool {
	return !t.sign.IsZero() && t.clock.Since(t.sign) <= watchPatience
}

// current reports whether the watch can be believed.
func (t *table) current() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.fresh()
}

// knows reports whether the watch has reported a key, believed or not.
func (t *table) knows(id string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.seen[id]
	return ok
}

// changes is a mark from before a read, for note.
func (t *table) changes() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.removals
}

// note remembers for a moment what a read has come to, unless a key has gone since changes.
func (t *table) note(id string, found answer, changes uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, gone := t.buried.Get(id); gone || changes != t.removals {
		return
	}
	lasts := believed
	if found.err != nil {
		lasts = denied
	}
	t.answers.Add(id, found, lasts)
}

// bury forgets a key that was deleted here.
func (t *table) bury(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buried.Add(id, nil)
	t.forget(id)
}

// forget forgets a key. The lock is held.
func (t *table) forget(id string) {
	t.removals++
	delete(t.seen, id)
	t.answers.Remove(id)
}

// drop notes that the watch reports the end of a key.
func (t *table) drop(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sign = t.clock.Now()
	t.forget(id)
}

// put notes that the watch reports a key.
func (t *table) put(key Stored) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sign = t.clock.Now()
	t.add(key)
}

// add is put without a sign of life. The lock is held.
func (t *table) add(key Stored) {
	if _, gone := t.buried.Get(key.ID); !gone {
		t.seen[key.ID] = key
	}
	t.answers.Remove(key.ID)
}

// replace notes that a list has reported all keys that there are.
func (t *table) replace(all []Stored) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sign = t.clock.Now()
	t.removals++
	t.answers = cache.NewLRUExpireCacheWithClock(maxAnswers, t.clock)
	t.seen = make(map[string]Stored, len(all))
	for _, key := range all {
		t.add(key)
	}
}

// alive notes a sign of life of the watch, which comes after a list.
func (t *table) alive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sign = t.clock.Now()
}

// listed reports whether all keys have been listed once.
func (t *table) listed() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return !t.sign.IsZero()
}
