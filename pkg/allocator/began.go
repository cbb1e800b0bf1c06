// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
)

// The times in a claim are by the clock of the server that wrote them, which may differ
// from this server's. So when a claim began, and for how long the server that created it
// works at it, is counted from when this server heard of it, as far as it was there. What
// was stored before that counts only where it is in the past.

// storedStart is when a claim began, as it says.
func storedStart(claim *v1alpha1.SandboxClaim) time.Time {
	if t := claim.Status.ClaimStartTime; t != nil {
		return t.Time
	}
	return claim.CreationTimestamp.Time
}

// noteStart notes when a claim began as of its current state, which this server hears of
// now. What is known stays where a client has removed the start from the status. u.mu is
// held, or there is no other user of u yet.
func (u *unfinished) noteStart(claim *v1alpha1.SandboxClaim) {
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

// start is when the claim began, by the clock of this server.
func (u *unfinished) start() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.started
}

// youngUntil is until when the server that created a claim works at it. One that was
// opened again is of the server that all agree on at once.
func (w *worker) youngUntil(u *unfinished) time.Time {
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
