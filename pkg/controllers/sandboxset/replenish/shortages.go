// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// shortages measures how long pools are short of available sandboxes: from the
// claim that took the first one, or from the look that found too few, until a
// look finds enough.
type shortages struct {
	lengths prometheus.Observer

	mu   sync.Mutex
	sets map[types.NamespacedName]*shortage
}

type shortage struct {
	// taken is the first take that no look has followed, or zero. It makes a pool
	// short only if the next look says so: the pool may have had too many.
	taken time.Time
	// since is zero while the pool has enough.
	since time.Time
}

func newShortages(lengths prometheus.Observer) *shortages {
	return &shortages{lengths: lengths, sets: map[types.NamespacedName]*shortage{}}
}

// took says that a claim took a sandbox out of the pool.
func (s *shortages) took(set types.NamespacedName, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.get(set); of.taken.IsZero() {
		of.taken = now
	}
}

// looked says how many sandboxes a look at the pool found, and of how many. It
// returns since when the pool has been short, or zero.
func (s *shortages) looked(set types.NamespacedName, available, replicas int, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.get(set)
	switch {
	case available < replicas && of.since.IsZero():
		of.since = now
		if !of.taken.IsZero() {
			of.since = of.taken
		}
	case available >= replicas && !of.since.IsZero():
		s.lengths.Observe(now.Sub(of.since).Seconds())
		of.since = time.Time{}
	}
	of.taken = time.Time{}
	return of.since
}

// forget drops all about a set that is gone.
func (s *shortages) forget(set types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sets, set)
}

func (s *shortages) get(set types.NamespacedName) *shortage {
	of := s.sets[set]
	if of == nil {
		of = &shortage{}
		s.sets[set] = of
	}
	return of
}
