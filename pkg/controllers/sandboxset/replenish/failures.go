// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// failures slows down sets whose template does not keep running. Such a set would
// make sandboxes, remove them when they ended, and make new ones, as fast as the
// server can. While sandboxes of the current revision end, failed or not, and no
// newer one of them is available, the set pauses between rounds: a second, then
// two, four, ... up to a minute. The first sandbox that does become available ends
// that, and so does a change of the template. Those that were available before
// prove nothing: an image may be gone from its registry, or broken under its tag.
type failures struct {
	mu   sync.Mutex
	sets map[types.NamespacedName]*failing
}

type failing struct {
	revision string
	pause    time.Duration
	until    time.Time
	// ended is when the newest sandbox that ended was made.
	ended time.Time
}

// outcome is how the sandboxes of the current revision fare.
type outcome struct {
	// ended of them have ended; newestEnded is when the newest of those was made,
	// and newestAvailable the newest that is available.
	ended                        int
	newestEnded, newestAvailable time.Time
}

// works counts an available sandbox.
func (o *outcome) works(sandbox *v1alpha1.Sandbox) {
	o.newestAvailable = later(o.newestAvailable, sandbox.CreationTimestamp.Time)
}

// garbage counts a sandbox that is of no use any more, if it ended by itself.
func (o *outcome) garbage(sandbox *v1alpha1.Sandbox) {
	switch sandbox.Status.Phase {
	case v1alpha1.SandboxFailed, v1alpha1.SandboxSucceeded:
		o.ended++
		o.newestEnded = later(o.newestEnded, sandbox.CreationTimestamp.Time)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func newFailures() *failures {
	return &failures{sets: map[types.NamespacedName]*failing{}}
}

// look takes in what a reconcile found and returns how long the set must pause
// before it creates again.
func (f *failures) look(set types.NamespacedName, revision string, o outcome, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sets[set]
	if s != nil && s.revision != revision {
		s = nil
	}
	ended := o.newestEnded
	if s != nil {
		ended = later(ended, s.ended)
	}
	// Times in objects have whole seconds: one of the same second counts.
	works := !o.newestAvailable.IsZero() && !o.newestAvailable.Before(ended)
	if s == nil || works {
		delete(f.sets, set)
		s = nil
	}
	if o.ended == 0 || works {
		if s == nil {
			return 0
		}
		return max(s.until.Sub(now), 0)
	}
	if s == nil {
		s = &failing{revision: revision, pause: firstPause / 2}
		f.sets[set] = s
	}
	s.ended = ended
	// Those that end during a pause are of the round before it.
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
