// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// setState is what the controller remembers of a set from one reconcile to the next.
// One reconcile of a set runs at a time. Beside it, the events of sandboxes and
// templates change expectations, claimRate, burst, shortage, createTimes, backoff and
// revision.missing, and the reconcile's own creates and deletes run side by side. So
// all of it is used under the lock of setStates.
type setState struct {
	uid          types.UID
	expectations expectations
	claimRate    claimRate
	burst        burstMemory
	backoff      backoff
	shortage     shortage
	createTimes  createTimes
	throttle     conditionThrottle
	// statusDue is when the status may be written again.
	statusDue time.Time

	// unscheduledReported is true after the event WarmPoolNotProgressing was sent, until
	// WarmPoolProgressing is.
	unscheduledReported bool
	revision            revisionMemory
}

// revisionMemory is what is remembered of the revisions of a set, and of the SandboxTemplates that hold them.
type revisionMemory struct {
	validated validatedRevision
	// compared remembers which pairs of revisions differ in metadata alone.
	compared map[[2]string]bool
	dryRun   *dryRunResult
	missing  revisionMissing
	// replaced is when a SandboxTemplate that did not hold its revision was last replaced.
	replaced time.Time
}

// recordClaim records that a claim took a sandbox out of the pool.
func (s *setState) recordClaim(now time.Time) {
	s.claimRate.recordClaim(now)
	s.burst.recordClaim(now)
	s.shortage.recordClaim(now)
}

// statusDelay is for how long a status must not be written, because a set that is large was written
// a moment ago. A user waits for what follows from a changed spec.
func (s *setState) statusDelay(set *v1alpha1.SandboxSet, status *v1alpha1.SandboxSetStatus, now time.Time) time.Duration {
	before := &set.Status
	if specChanged(set) || before.UpdateRevision != status.UpdateRevision || before.CurrentRevision != status.CurrentRevision ||
		equality.Semantic.DeepEqual(before, status) {
		return 0
	}
	return max(0, s.statusDue.Sub(now))
}

// setStates are the states of all sets.
type setStates struct {
	quiet time.Duration

	mu   sync.Mutex
	sets map[types.NamespacedName]*setState
}

func newSetStates(quiet time.Duration) *setStates {
	return &setStates{quiet: quiet, sets: map[types.NamespacedName]*setState{}}
}

// track begins to remember a set that a reconcile has found. A set that was deleted
// and created again by the same name begins anew.
func (s *setStates) track(set *v1alpha1.SandboxSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(set)
	if state := s.sets[key]; state != nil && state.uid == set.UID {
		return
	}
	s.sets[key] = &setState{
		uid: set.UID, expectations: newExpectations(), claimRate: claimRate{quiet: s.quiet}, createTimes: createTimes{},
	}
}

// withState calls f with the state of a set, under the lock. It does nothing if the set is not
// tracked: events may come before its first reconcile and after its last. f must not block.
func (s *setStates) withState(set types.NamespacedName, f func(*setState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.sets[set]; state != nil {
		f(state)
	}
}

// forget drops all about a set that is gone.
func (s *setStates) forget(set types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sets, set)
}

// eventDelay is how long to gather events of a set before it is reconciled.
func (s *setStates) eventDelay(set types.NamespacedName) time.Duration {
	delay := s.quiet
	s.withState(set, func(state *setState) { delay = state.claimRate.eventDelay() })
	return delay
}

// validatedRevision is the revision that a generation of a set leads to, and what is wrong with it; err is nil if
// nothing is.
type validatedRevision struct {
	generation int64
	revision   string
	err        error
}

// dryRunResult is what the API said of the pods of a revision when the
// SandboxTemplate that holds it was created. The API has asked the cluster then, by a
// dry run that is not repeated; so the result is kept until it is in the set's status.
type dryRunResult struct {
	revision string
	// warnings came with the answer; none means that all is well.
	warnings []string
}

// revisionMissing is why the SandboxTemplate of a name, which is to hold the revision of a set, could
// not be created, and when that is tried again. It is empty where the next reconcile tries it.
type revisionMissing struct {
	name    string
	err     error
	retryAt time.Time
}

// shortage measures how long a pool is short of available sandboxes: from the claim
// that took the first one, or from the count that found too few, until a count finds
// enough.
type shortage struct {
	// claimed is the first claim that no count has followed, or zero. It makes a pool
	// short only if the next count says so: the pool may have had too many.
	claimed time.Time
	// since is zero while the pool has enough.
	since time.Time
}

func (s *shortage) recordClaim(now time.Time) {
	if s.claimed.IsZero() {
		s.claimed = now
	}
}

// recordCount takes in how many sandboxes a count found, and of how many. It returns
// since when the pool has been short, or zero, and how long a shortage was that is
// over now, or zero.
func (s *shortage) recordCount(available, replicas int, now time.Time) (since time.Time, length time.Duration) {
	switch {
	case available < replicas && s.since.IsZero():
		s.since = now
		if !s.claimed.IsZero() {
			s.since = s.claimed
		}
	case available >= replicas && !s.since.IsZero():
		length = now.Sub(s.since)
		s.since = time.Time{}
	}
	s.claimed = time.Time{}
	return s.since, length
}

// createTimes are the times at which the creates of sandboxes that are still creating
// began. They measure how long sandboxes take to be available, but not those of a
// controller before this one.
type createTimes map[types.UID]time.Time

// recordState takes in the state of a sandbox in its pool. It returns how long the sandbox has
// taken to be available, once.
func (s createTimes) recordState(sandbox types.UID, now poolState, at time.Time) (time.Duration, bool) {
	began, creating := s[sandbox]
	if !creating || now == stateCreating {
		return 0, false
	}
	delete(s, sandbox)
	return at.Sub(began), now == stateAvailable
}
