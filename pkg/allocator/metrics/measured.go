// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxMeasuredPools is how many pools have figures of their own, in all and of one
	// namespace. Sets and namespaces are their users' to make, and each one that is
	// measured costs a Prometheus some 30 series.
	maxMeasuredPools            = 100
	maxMeasuredPoolsOfNamespace = 20
	// idleMeasured is how long a pool keeps its figures against one that is claimed from.
	idleMeasured = 10 * time.Minute
)

// measured is which pools, or what else users name, have figures of their own: those that
// were claimed from first, and have been since. A set or a namespace more costs no series
// more when all places are taken.
type measured struct {
	// other is the name of all that has no place. No namespace and no set can be called
	// that.
	other string
	// forget deletes the figures of what has lost its place. shared says that something of
	// the same name in another namespace has one.
	forget func(gone types.NamespacedName, shared bool)

	mu     sync.Mutex
	places map[types.NamespacedName]time.Time // when each was last claimed from
	of     map[string]int                     // how many a namespace has, but for its other
}

func newMeasured(other string, forget func(gone types.NamespacedName, shared bool)) *measured {
	return &measured{other: other, forget: forget, places: map[types.NamespacedName]time.Time{}, of: map[string]int{}}
}

// count calls add with the name under which a pool is counted, and returns when that is
// done: what is evicted does not come back.
func (m *measured) count(pool types.NamespacedName, now time.Time, add func(types.NamespacedName)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	add(m.place(pool, now))
}

// place returns the name under which a pool is counted.
func (m *measured) place(pool types.NamespacedName, now time.Time) types.NamespacedName {
	if _, has := m.places[pool]; !has {
		if pool.Name != m.other && m.of[pool.Namespace] >= maxMeasuredPoolsOfNamespace && !m.evict(pool.Namespace, now) {
			return m.place(types.NamespacedName{Namespace: pool.Namespace, Name: m.other}, now)
		}
		if len(m.places) >= maxMeasuredPools && !m.evict("", now) {
			return types.NamespacedName{Namespace: m.other, Name: m.other}
		}
		if pool.Name != m.other {
			m.of[pool.Namespace]++
		}
	}
	m.places[pool] = now
	return pool
}

// evict takes its figures from the pool that has been idle for longest, of a namespace
// or of all, and reports whether one has been for long enough.
func (m *measured) evict(in string, now time.Time) bool {
	var idle types.NamespacedName
	since := now.Add(-idleMeasured)
	for pool, used := range m.places {
		if used.Before(since) && (in == "" || pool.Namespace == in && pool.Name != m.other) {
			idle, since = pool, used
		}
	}
	if idle.Name == "" {
		return false
	}
	delete(m.places, idle)
	if idle.Name != m.other {
		if m.of[idle.Namespace]--; m.of[idle.Namespace] == 0 {
			delete(m.of, idle.Namespace)
		}
	}
	m.forget(idle, m.hasName(idle.Name))
	return true
}

// hasName reports whether something of a name has a place.
func (m *measured) hasName(name string) bool {
	for pool := range m.places {
		if pool.Name == name {
			return true
		}
	}
	return false
}
