// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/allocator/runtimesetup"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// ownership decides which server works on a claim.
type ownership struct {
	reconciler *reconciler.Reconciler
	runtimes   *runtimesetup.Caller
	clock      clock.PassiveClock
	syncWindow time.Duration
}

// isMine reports whether this server works on a claim. The server that created it does for as long as
// the create call may wait and a little longer, and then the server by the hash. A server that sets up
// runtimes for the claim works on it until the results are written.
func (o *ownership) isMine(uid types.UID, u *unfinishedClaim) bool {
	if o.reconciler.IsAlone() {
		return true
	}
	if u.work != nil && (u.work.setups.HasCalls() || o.hasMarked(u)) {
		return true
	}
	if o.clock.Now().Before(o.creatorWorksUntil(u)) {
		return !u.start.created.IsZero()
	}
	return o.reconciler.IsMine(uid)
}

// hasMarked reports whether a sandbox that the claim holds is marked as one into which
// this work on the claim mounts volumes. No other server does then.
func (o *ownership) hasMarked(u *unfinishedClaim) bool {
	claim := u.latest()
	if claim == nil || !claims.Mounts(claim) {
		return false
	}
	mark := o.runtimes.Mark(u.work.setups)
	if mark == "" {
		return false
	}
	return slices.ContainsFunc(u.snapshot().held, func(sb *v1alpha1.Sandbox) bool {
		return plan.IsStarting(sb) && sb.DeletionTimestamp == nil && sb.Annotations[v1alpha1.AnnotationMounting] == mark
	})
}

// watchOthers keeps the position of a claim that another server works on, so that newcomers on this
// server do not overtake it. It returns after what time to check again which server works on it.
func (f *finisher) watchOthers(u *unfinishedClaim, seen view, now time.Time) time.Duration {
	q := f.committer.queue
	u.work.reservation.release(q)
	e := claims.EligiblePools(seen.claim, &f.supplier.stock.Sets)
	assessment := plan.Assess(plan.State{Claim: seen.claim, Start: u.startTime(), Held: seen.held, Eligible: e, Now: now})
	wants := assessment.Wants()
	if claims.CreatesOnNoStock(seen.claim) && e.CanMake() && !claims.HasCreateProblem(seen.claim) {
		wants.Need = 0 // it has sandboxes made
	}
	u.waiter.Watch(candidates.WantsOf(seen.claim, &e, wants, 0))
	if left := f.ownership.creatorWorksUntil(u).Sub(now); left > 0 {
		return max(shortest, left)
	}
	return 0 // until there are other servers
}

// confirm makes sure that the claims that are before newcomers in the lines of pools still
// wait: the watch may not have reported yet that they are served.
func (f *finisher) confirm(ctx context.Context, sources []queue.Source) error {
	const most = 16
	for _, uid := range f.committer.queue.Before(sources, most) {
		u := f.unfinished.of(uid)
		if u == nil {
			continue
		}
		seen := u.latest()
		if seen == nil || f.ownership.isMine(uid, u) {
			continue // this server knows
		}
		stored, err := f.committer.store.Claim(ctx, seen.Namespace, seen.Name)
		switch {
		case err != nil:
			return err
		case stored == nil || stored.UID != uid:
			u.setDeleted()
			u.waiter.Leave()
		case !u.setClaim(stored) || claims.Unfinished(stored):
			continue
		default:
			u.waiter.Served(int(stored.Status.ClaimedReplicas))
		}
		f.unfinished.due.Add(uid)
	}
	return nil
}
