// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// starts measures how long sandboxes take to be available. It knows those that
// this controller has created and that are still starting; those of a controller
// before it are not measured.
type starts struct {
	durations prometheus.Observer

	mu    sync.Mutex
	since map[types.UID]time.Time
}

func newStarts(durations prometheus.Observer) *starts {
	return &starts{durations: durations, since: map[types.UID]time.Time{}}
}

// created says that a create that began at since made a sandbox.
func (s *starts) created(sandbox types.UID, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since[sandbox] = since
}

// saw says what use a sandbox has now.
func (s *starts) saw(sandbox types.UID, is use, now time.Time) {
	if is == useCreating {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	since, starting := s.since[sandbox]
	if !starting {
		return
	}
	delete(s.since, sandbox)
	if is == useAvailable {
		s.durations.Observe(now.Sub(since).Seconds())
	}
}
