// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
)

// The times in a claim are by the clock of the server that wrote them, which may differ from
// the clock of this server. So the start of a claim, and the time for which the server that
// created it keeps working on it, are counted from when the watch of this server reported that
// the claim was created. Stored times are used for claims that this server did not see being
// created, and only if they are in the past.

// storedStart is the start that the claim itself has.
func storedStart(claim *v1alpha1.SandboxClaim) time.Time {
	if t := claim.Status.ClaimStartTime; t != nil {
		return t.Time
	}
	return claim.CreationTimestamp.Time
}

// setStart sets u.started for the current state of the claim, which this server has just
// received. It keeps u.started if the stored start has not changed, or if a client has removed
// it from the status. u.mu is held, or there is no other user of u yet.
func (u *unfinished) setStart(claim *v1alpha1.SandboxClaim) {
	now, stored, first := u.clock.Now(), storedStart(claim), u.started.IsZero()
	if !first && (claim.Status.ClaimStartTime == nil || stored.Equal(u.stored)) {
		return
	}
	u.stored = stored
	switch {
	case !u.created.IsZero() && stored.Equal(u.created.Truncate(time.Second)):
		u.started = u.created
	case first && u.sawCreation, stored.After(now):
		u.started = now
	default:
		u.started = stored
	}
}

// start is the start of the claim by the clock of this server.
func (u *unfinished) start() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.started
}

// creatorWorksUntil is the time until which the server that created a claim works on it; after
// that the server that all agree on does. It is zero for a claim that was reopened.
func (w *finisher) creatorWorksUntil(u *unfinished) time.Time {
	since := u.created
	if claim := u.latest(); since.IsZero() && claim != nil {
		if plan.WasReopened(claim) {
			return time.Time{}
		}
		if since = u.seen; !u.sawCreation && claim.CreationTimestamp.Time.Before(since) {
			since = claim.CreationTimestamp.Time
		}
	}
	return since.Add(w.syncWindow + handOverAfter)
}
