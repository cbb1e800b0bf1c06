// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
)

// The times in a claim are by the clock of the server that wrote them, which may differ from
// the clock of this server. So the start of a claim, and the time for which the server that
// created it keeps working on it, are counted from when the watch of this server reported that
// the claim was created. Stored times are used for claims that this server did not see being
// created, and only if they are in the past.

// claimStart is when a claim began, by the clock of this server.
type claimStart struct {
	clock clock.PassiveClock
	// created is when this server created the claim; zero if another did.
	created time.Time
	// seen is when this server first received the claim, and sawCreation is set if that was by
	// the event of its creation.
	seen        time.Time
	sawCreation bool
	// started is the start, and stored the start that the claim had when started was set. The lock
	// of the claim guards both.
	started, stored time.Time
}

// set sets s.started for the current state of the claim, which this server has just
// received. It keeps s.started if the stored start has not changed, or if a client has removed
// it from the status. The lock of the claim is held, or there is no other user of it yet.
func (s *claimStart) set(claim *v1alpha1.SandboxClaim) {
	now, stored, first := s.clock.Now(), storedStart(claim), s.started.IsZero()
	if !first && (claim.Status.ClaimStartTime == nil || stored.Equal(s.stored)) {
		return
	}
	s.stored = stored
	switch {
	case !s.created.IsZero() && stored.Equal(s.created.Truncate(time.Second)):
		s.started = s.created
	case first && s.sawCreation, stored.After(now):
		s.started = now
	default:
		s.started = stored
	}
}

// storedStart is the start that the claim itself has.
func storedStart(claim *v1alpha1.SandboxClaim) time.Time {
	if t := claim.Status.ClaimStartTime; t != nil {
		return t.Time
	}
	return claim.CreationTimestamp.Time
}

// creatorWorksUntil is the time until which the server that created a claim works on it; after
// that the server that all agree on does. It is zero for a claim that was reopened.
func (o *ownership) creatorWorksUntil(u *unfinishedClaim) time.Time {
	since := u.start.created
	if claim := u.latest(); since.IsZero() && claim != nil {
		if plan.IsReopened(claim) {
			return time.Time{}
		}
		if since = u.start.seen; !u.start.sawCreation && claim.CreationTimestamp.Time.Before(since) {
			since = claim.CreationTimestamp.Time
		}
	}
	return since.Add(o.syncWindow + handOverAfter)
}
