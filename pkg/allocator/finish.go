// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/metadatasync"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/allocator/runtimesetup"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/allocator/throttles"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// handOverAfter is how much longer than the sync window the server that created a
// claim works on it. After that, the server by the hash does (reconciler.IsMine).
const handOverAfter = 5 * time.Second

// finisher brings claims to their end that are not finished in their create call, also
// after a restart, and also those of servers that are gone. One server works on a claim at a time. A
// transaction compares the claim's revision, so two servers at one claim cost only a retry.
type finisher struct {
	supplier  *supplier
	committer *committer
	ownership *ownership
	writer    *metadatasync.Writer
	// unfinished are the claims that are not at their end.
	unfinished *unfinishedClaims
	runtimes   *runtimesetup.Caller
	// reports limits the writes that only report what claims wait for, and reportedAt is when those at
	// the front of the queue were woken for that last.
	reports    *fairness.SharedLimiters
	reportedAt time.Time
}

func newFinisher(r *reconciler.Reconciler, p *supplier, c *committer, syncWindow time.Duration, setUp runtimesetup.SetUp) *finisher {
	runtimes := runtimesetup.NewCaller(r, c.clock, setUp)
	return &finisher{
		supplier: p, committer: c, writer: &metadatasync.Writer{
			Templates: p.templates, Store: c.store, Clock: c.clock, Throttles: c.throttles, Lag: c.lag,
		}, runtimes: runtimes,
		ownership:  &ownership{r, runtimes, c.clock, syncWindow},
		unfinished: newUnfinishedClaims(c.clock, c.queue, r.Queue),
		reports:    fairness.NewSharedLimiters(reportsPerSecond, reportBurst), reportedAt: c.clock.Now(),
	}
}

// tick does what is due by the passing of time, every second.
func (f *finisher) tick(now time.Time) {
	f.committer.queue.Tick()
	f.committer.throttles.RemoveExpired(now)
	if now.Sub(f.reportedAt) >= reportFrontInterval {
		f.committer.queue.WakeFront(reportFront)
		f.reportedAt = now
	}
}

// tries is how often an attempt is repeated at once because candidates have changed.
const tries = 10

func (f *finisher) NamespaceOf(uid types.UID) string {
	if u := f.unfinished.toWorkAt(uid); u != nil {
		return u.key.Namespace
	}
	return ""
}

func (f *finisher) Reconcile(ctx context.Context, uid types.UID) (again time.Duration, err error) {
	defer f.runtimes.Share.Wake() // it may have made the claim due for a setup that is not needed
	u := f.unfinished.toWorkAt(uid)
	if u == nil {
		return 0, nil
	}
	traced := ctx
	if u.work.span != nil {
		traced = trace.ContextWithSpan(ctx, u.work.span)
	}
	again, err = f.advance(traced, uid, u)
	for range tries {
		if errors.Is(err, storage.ErrReplan) {
			again, err = f.advance(traced, uid, u)
		}
	}
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, storage.ErrReplan):
	case errors.Is(err, storage.ErrConflict):
		u.markIncomplete() // what is known of it may be wrong
	case storage.ThrottledFor(err) > 0:
		u.waiter.Leave()
		u.work.reservation.release(f.committer.queue) // others can take it meanwhile
		return f.throttleDelay(u, storage.ThrottledFor(err)), nil
	default:
		u.markIncomplete() // whatever was written, the store knows
		u.waiter.Leave()
	}
	return again, err
}

// throttleDelay returns how long a throttled claim waits, at most until its deadline: ending a claim
// is never throttled.
func (f *finisher) throttleDelay(u *unfinishedClaim, throttled time.Duration) time.Duration {
	claim := u.latest()
	if claim == nil {
		return shortest
	}
	return min(throttled, max(shortest, plan.Deadline(claim, u.startTime()).Sub(f.committer.clock.Now())))
}

// advance makes one attempt for a claim, and returns after what time to make another; 0 means
// when there is an event.
func (f *finisher) advance(ctx context.Context, uid types.UID, u *unfinishedClaim) (again time.Duration, err error) {
	now := f.committer.clock.Now()
	seen, mine := u.snapshot(), f.ownership.isMine(uid, u)
	f.unfinished.setMine(u, mine)
	switch {
	case seen.deleted || seen.claim.DeletionTimestamp != nil:
		return 0, f.abandon(ctx, uid, u, seen)
	case !claims.Unfinished(seen.claim):
		u.waiter.Served(int(seen.claim.Status.ClaimedReplicas))
		f.unfinished.forget(u, uid)
		return 0, nil
	case !mine:
		return f.watchOthers(u, seen, now), nil
	case !seen.complete:
		held, err := f.committer.store.SandboxesOf(ctx, seen.claim)
		if err != nil {
			return 0, err
		}
		u.setHeld(seen, held)
		seen.held = u.snapshot().held
	}
	u.work.setups.ClearNotified()
	metadata, stepped, err := f.syncMetadata(ctx, u, seen, now)
	if stepped || err != nil {
		return reconciler.Soon, err
	}
	key := throttles.Key{Namespace: seen.claim.Namespace, User: plan.Claimer(seen.claim)}
	throttled := f.committer.throttles.Delay(key, uid, now)
	if throttled > 0 && !canAdvance(u, seen, now) {
		return 0, &ThrottledError{RetryAfter: throttled}
	}
	defer f.committer.throttles.Done(key, uid)
	try := &attempt{finder: finder{supplier: f.supplier, reservation: u.work.reservation, waiter: u.waiter, throttled: throttled}}
	try.state = plan.State{Claim: seen.claim, Start: u.startTime(), Held: seen.held, Metadata: metadata}
	var hopeless *RefusedError
	if try.state.Setups, hopeless = f.runtimes.Known(u.work.setups, seen.held); u.work.reservation.refused == nil {
		u.work.reservation.refused = hopeless
	}
	p, err := try.plan(ctx)
	if err != nil {
		return 0, err
	}
	u.recordPlan(&try.state, p)
	hold := f.holdBack(u, p, now)
	if !p.Changes() || hold > 0 {
		f.setUpRuntimes(u)
		waitFor(try, p)
		return f.nextCheck(u, try, p, hold), nil
	}
	return f.write(ctx, u, seen, try, p, now)
}

// syncMetadata does the next step for the metadata of a claim that was changed before the claim is
// Completed. It is part of the finisher's step, so that it never conflicts with the binding. It
// returns what the plan has to know, or that a transaction was written and the step is over. A
// metadatasync.Syncer does it for claims that are Completed.
func (f *finisher) syncMetadata(ctx context.Context, u *unfinishedClaim, seen view, now time.Time) (change plan.MetadataChange, stepped bool, err error) {
	claim, rollout := seen.claim, u.work.metadata
	switch {
	case claim.Status.ObservedGeneration == claim.Generation:
		if rollout != nil && rollout.IsQuiet(now) {
			u.work.metadata = nil
		}
		return change, false, nil
	case len(seen.held) == 0:
		return change, false, nil
	case rollout == nil:
		rollout = metadatasync.NewRollout()
		u.work.metadata = rollout
	case rollout.IsDone(claim):
		return plan.MetadataChange{Report: rollout.Report()}, false, nil
	}
	rollout.Begin(claim, now)
	if now.Before(rollout.Next()) || !now.Before(plan.Deadline(claim, u.startTime())) {
		return plan.MetadataChange{Behind: true}, false, nil // its end does not wait for this
	}
	wrote, done, err := f.writer.Step(ctx, rollout, claim, seen.held)
	throttled := storage.ThrottledFor(err)
	switch {
	case throttled > 0: // the rest of the step may have writes that are not rejected
		rollout.Throttle(now.Add(throttled))
		return plan.MetadataChange{Behind: true}, false, nil
	case err != nil:
		return change, false, err
	case done:
		return plan.MetadataChange{Report: rollout.Report()}, false, nil
	}
	if len(wrote) > 0 {
		u.setWritten(seen, claim, wrote)
	}
	return change, true, nil
}

// setUpRuntimes begins to set up the runtimes of what the claim holds, as far as that is
// due. It is called when what was planned is written, and makes no transaction wait.
func (f *finisher) setUpRuntimes(u *unfinishedClaim) {
	seen := u.snapshot()
	if len(seen.held) == 0 {
		u.work.setups.KeepOnly(nil)
		return
	}
	f.runtimes.Begin(u.work.setups, plan.State{Claim: seen.claim, Start: u.startTime(), Held: seen.held}, u.work.span)
}

// canAdvance reports whether a throttled claim may still have to be written: it has reached its
// deadline, its spec has changed, or it holds sandboxes that are starting.
func canAdvance(u *unfinishedClaim, seen view, now time.Time) bool {
	return !now.Before(plan.Deadline(seen.claim, u.startTime())) || seen.claim.Status.ObservedGeneration != seen.claim.Generation ||
		slices.ContainsFunc(seen.held, plan.IsStarting)
}

// write writes a plan, and returns after what time the claim is due again.
func (f *finisher) write(ctx context.Context, u *unfinishedClaim, seen view, try *attempt, p *plan.Plan, now time.Time) (time.Duration, error) {
	written, err := f.committer.update(ctx, p, u.work.reservation)
	if errors.Is(err, ErrTooLarge) || errors.Is(err, etcdtxn.ErrTooLarge) {
		if u.work.reservation.refused != nil && u.work.reservation.refused.Reason == v1alpha1.ReasonTooLarge {
			return f.releaseStarting(ctx, u, seen, err)
		}
		// It never fits: the claim gets no more, and others can have what it holds.
		u.work.reservation.refused = &RefusedError{Reason: v1alpha1.ReasonTooLarge, Message: err.Error()}
		try.finder.release()
		return reconciler.Soon, nil
	}
	key := throttles.Key{Namespace: seen.claim.Namespace, User: p.Claimer()}
	if retryAfter := storage.ThrottledFor(err); retryAfter > 0 {
		f.committer.throttles.Rejected(key, retryAfter, now)
	}
	if err != nil {
		return 0, err
	}
	if p.Binds() {
		f.committer.throttles.Accepted(key)
	}
	all, _ := p.Sandboxes()
	u.setWritten(seen, written, all)
	u.work.noteWrite(p, now)
	if p.Ends() {
		f.unfinished.forget(u, p.Claim.UID)
		return 0, nil
	}
	f.setUpRuntimes(u)
	waitFor(try, p)
	return reconciler.Soon, nil
}

// releaseStarting releases what is starting for a claim whose end does not fit into one transaction with
// that; tooLarge says so. The next attempt writes the end.
func (f *finisher) releaseStarting(ctx context.Context, u *unfinishedClaim, seen view, tooLarge error) (time.Duration, error) {
	starting := slices.DeleteFunc(slices.Clone(seen.held), func(sb *v1alpha1.Sandbox) bool {
		return !plan.IsStarting(sb) || sb.DeletionTimestamp != nil
	})
	if len(starting) == 0 {
		return 0, tooLarge
	}
	if _, err := f.committer.releaseSandboxes(ctx, starting); err != nil {
		return 0, err
	}
	u.markIncomplete()
	return reconciler.Soon, nil
}

// waitFor queues the claim for what it still needs after a plan. A throttled claim leaves the queue, so
// that other claims are served meanwhile.
func waitFor(try *attempt, p *plan.Plan) {
	if try.finder.throttled > 0 {
		try.finder.waiter.Leave()
		return
	}
	try.finder.waiter.Wait(candidates.WantsOf(p.Claim, &try.state.Eligible, p.Wants, len(try.finder.reservation.taken)))
}

// shortest is the least time between two attempts of a claim that begin without an event.
const shortest = 20 * time.Millisecond

// nextCheck returns how long nothing changes by the passing of time alone after a plan.
func (f *finisher) nextCheck(u *unfinishedClaim, try *attempt, p *plan.Plan, hold time.Duration) time.Duration {
	now := f.committer.clock.Now()
	next := []time.Duration{p.Until.Sub(now)}
	if hold > 0 {
		next = append(next, hold)
	}
	if try.finder.throttled > 0 {
		next = append(next, try.finder.throttled)
	}
	for _, b := range []reconciler.Backoff{try.finder.reservation.makeBackoff, try.finder.reservation.lookBackoff} {
		if !b.IsOver(now) {
			next = append(next, b.Until.Sub(now))
		}
	}
	if try.state.Metadata.Behind {
		if at := u.work.metadata.Next(); at.After(now) {
			next = append(next, at.Sub(now))
		}
	}
	if left := f.ownership.creatorWorksUntil(u).Sub(now); left > 0 {
		next = append(next, left)
	}
	return max(shortest, slices.Min(next))
}

// abandon ends the work on a claim that is gone: bound sandboxes stay with their
// users, but what was only starting for the claim is released.
func (f *finisher) abandon(ctx context.Context, uid types.UID, u *unfinishedClaim, seen view) error {
	u.work.reservation.release(f.committer.queue)
	u.waiter.Leave()
	isMine := f.ownership.isMine(uid, u)
	u.work.setups.KeepOnly(nil)
	if isMine {
		held, err := f.committer.store.SandboxesOf(ctx, seen.claim)
		if err != nil {
			return err
		}
		starting := slices.DeleteFunc(held, func(sb *v1alpha1.Sandbox) bool { return !plan.IsStarting(sb) || sb.DeletionTimestamp != nil })
		for len(starting) > 0 {
			n, err := f.committer.releaseSandboxes(ctx, starting)
			if err != nil {
				return fmt.Errorf("releasing sandboxes of a deleted claim: %w", err)
			}
			starting = starting[n:]
		}
	}
	now := f.committer.clock.Now()
	ended := seen.claim
	if ended.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		ended = plan.Deleted(seen.claim, now)
		metrics.ObserveEnd(ended, now.Sub(u.startTime()))
	}
	u.mu.Lock()
	u.claim = ended
	u.mu.Unlock()
	f.unfinished.forget(u, uid)
	return nil
}
