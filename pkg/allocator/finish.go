// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

const (
	// handOverAfter is how much longer than the sync window the server that created a
	// claim works on it. Then the one does that all agree on.
	handOverAfter = 5 * time.Second
	// letGoAtOnce is how many sandboxes of a deleted claim are let go in one transaction.
	letGoAtOnce = 100
)

// finisher brings claims to their end that are not finished in their create call: also
// after a restart, also those of servers that are gone. One server works on a claim at a time, and a
// transaction compares the claim's revision, so that two at one claim cost a retry.
type finisher struct {
	planner    *planner
	committer  *committer
	reconciler *reconciler
	passer     *passer
	syncWindow time.Duration
	// peers are the servers of the store; nil before they are known.
	peers atomic.Pointer[peers]
	// known are the claims that are not at their end.
	known *unfinishedClaims
	// setupShare keeps the setting up of runtimes from being one namespace's.
	setupShare *workShare
	setUp      setupFunc
	// tellings bounds the writes that do nothing but tell claims of their wait, and toldAt is when
	// those at the front of the queue were told last.
	tellings *tellings
	toldAt   time.Time
}

func newFinisher(r *reconciler, p *planner, c *committer, syncWindow time.Duration, setUp setupFunc) *finisher {
	if setUp == nil {
		setUp = noSetUp
	}
	return &finisher{
		planner: p, committer: c, reconciler: r, passer: &passer{p.templates, c}, syncWindow: syncWindow,
		known:      newUnfinishedClaims(c.clock, c.queue, r.queue),
		setupShare: newWorkShare(setupsAtOnce, r.queue.Add), setUp: setUp,
		tellings: newTellings(), toldAt: c.clock.Now(),
	}
}

// tick does what is due by the passing of time, every second.
func (w *finisher) tick(now time.Time) {
	w.committer.queue.Tick()
	w.committer.throttles.removeExpired(now)
	if now.Sub(w.toldAt) >= tellFrontEvery {
		w.committer.queue.WakeFront(tellFront)
		w.toldAt = now
	}
}

// isMine reports whether this server works on a claim. The one that created it does,
// for as long as that may be answered and a little longer, and then the one that all
// agree on. One that has set up runtimes for it, or is about it, goes on until that is
// written.
func (w *finisher) isMine(uid types.UID, u *unfinished) bool {
	if w.reconciler.isAlone() {
		return true
	}
	if u.work != nil && (u.work.setups.inHand() || w.hasMarked(u)) {
		return true
	}
	if w.committer.clock.Now().Before(w.creatorWorksUntil(u)) {
		return !u.created.IsZero()
	}
	return w.reconciler.isMine(uid)
}

// hasMarked reports whether a sandbox that the claim holds is marked as one into which
// this work on the claim mounts volumes. Nobody else does then.
func (w *finisher) hasMarked(u *unfinished) bool {
	peers, claim := w.peers.Load(), u.latest()
	if peers == nil || claim == nil || !claims.Mounts(claim) {
		return false
	}
	mark := peers.mark(u.work.setups)
	return slices.ContainsFunc(u.look().held, func(sb *v1alpha1.Sandbox) bool {
		return plan.IsStarting(sb) && sb.DeletionTimestamp == nil && sb.Annotations[v1alpha1.AnnotationMounting] == mark
	})
}

// tries is how often a turn is planned anew at once because candidates had moved.
const tries = 10

func (w *finisher) namespaceOf(uid types.UID) string {
	if u := w.known.toWorkAt(uid); u != nil {
		return u.key.Namespace
	}
	return ""
}

func (w *finisher) reconcile(ctx context.Context, uid types.UID) (again time.Duration, err error) {
	defer w.setupShare.wake() // it may have made the claim due for a setup that is not needed
	u := w.known.toWorkAt(uid)
	if u == nil {
		return 0, nil
	}
	traced := ctx
	if u.work.span != nil {
		traced = trace.ContextWithSpan(ctx, u.work.span)
	}
	again, err = w.turn(traced, uid, u)
	for range tries {
		if errors.Is(err, errAgain) {
			again, err = w.turn(traced, uid, u)
		}
	}
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, errAgain):
	case errors.Is(err, errClaimMoved):
		u.incomplete() // what is known of it may be wrong
	case throttledFor(err) > 0:
		w.committer.queue.Leave(u.waiter)
		u.work.hand.letGo(w.committer.queue) // others can have it meanwhile
		return w.throttleDelay(u, throttledFor(err)), nil
	default:
		u.incomplete() // whatever was written, the store knows
		w.committer.queue.Leave(u.waiter)
	}
	return again, err
}

// throttleDelay returns how long a throttled claim waits, at most until its deadline: ending a claim
// is never throttled.
func (w *finisher) throttleDelay(u *unfinished, throttled time.Duration) time.Duration {
	claim := u.latest()
	if claim == nil {
		return shortest
	}
	return min(throttled, max(shortest, plan.Deadline(claim, u.start()).Sub(w.committer.clock.Now())))
}

// throttledFor returns how long to wait before the retry after a ThrottledError; 0 for other errors.
func throttledFor(err error) time.Duration {
	if throttled := (*ThrottledError)(nil); errors.As(err, &throttled) {
		return throttled.RetryAfter
	}
	return 0
}

// turn brings a claim forward, and returns after what time to do so again; 0 means
// when there is news.
func (w *finisher) turn(ctx context.Context, uid types.UID, u *unfinished) (again time.Duration, err error) {
	now := w.committer.clock.Now()
	seen, mine := u.look(), w.isMine(uid, u)
	w.known.setMine(u, mine)
	switch {
	case seen.deleted || seen.claim.DeletionTimestamp != nil:
		return 0, w.abandon(ctx, uid, u, seen)
	case !claims.Unfinished(seen.claim):
		w.committer.queue.Served(u.waiter, int(seen.claim.Status.ClaimedReplicas))
		w.known.forget(u, uid)
		return 0, nil
	case !mine:
		return w.watchOthers(u, seen, now), nil
	case !seen.complete:
		held, err := w.committer.store.SandboxesOf(ctx, seen.claim)
		if err != nil {
			return 0, err
		}
		u.listed(seen, held)
		seen.held = u.look().held
	}
	u.work.setups.heard()
	metadata, stepped, err := w.bringMetadata(ctx, u, seen, now)
	if stepped || err != nil {
		return soon, err
	}
	key := limitKey{seen.claim.Namespace, plan.Claimer(seen.claim)}
	throttled := w.committer.throttles.delay(key, uid, now)
	if throttled > 0 && !w.canAdvance(u, seen, now) {
		return 0, &ThrottledError{RetryAfter: throttled}
	}
	defer w.committer.throttles.done(key, uid)
	t := &turn{planner: w.planner, hand: &u.work.hand, waiter: u.waiter, throttled: throttled}
	t.state = plan.State{Claim: seen.claim, Start: u.start(), Held: seen.held, Metadata: metadata}
	var hopeless *RefusedError
	if t.state.Setups, hopeless = w.setupsOf(u, seen.held); u.work.hand.refused == nil {
		u.work.hand.refused = hopeless
	}
	p, err := t.plan(ctx)
	if err != nil {
		return 0, err
	}
	u.planned(&t.state, p)
	hold := w.holdBack(u, p, now)
	if !p.Changes() || hold > 0 {
		w.setUpRuntimes(u)
		w.wait(t, p)
		return w.until(u, t, p, hold), nil
	}
	return w.write(ctx, u, seen, t, p, now)
}

// canAdvance reports whether a throttled claim may still have to be written: it has reached its
// deadline, its spec has changed, or it holds sandboxes that are starting.
func (w *finisher) canAdvance(u *unfinished, seen view, now time.Time) bool {
	return !now.Before(plan.Deadline(seen.claim, u.start())) || seen.claim.Status.ObservedGeneration != seen.claim.Generation ||
		slices.ContainsFunc(seen.held, plan.IsStarting)
}

// holdBack returns for how long a plan is not written, of which the writes that only tell
// are spaced.
func (w *finisher) holdBack(u *unfinished, p *plan.Plan, now time.Time) time.Duration {
	if !p.Changes() {
		return 0
	}
	hold := u.work.holdBack(p, now)
	if hold == 0 && p.OnlyTellsOfWait() && !w.tellings.allow(u.key.Namespace, now) {
		return wait.Jitter(tellLater, 1)
	}
	return hold
}

// write writes a plan, and returns after what time the next turn is.
func (w *finisher) write(ctx context.Context, u *unfinished, seen view, t *turn, p *plan.Plan, now time.Time) (time.Duration, error) {
	written, err := w.committer.write(ctx, false, p, &u.work.hand)
	if errors.Is(err, ErrTooLarge) || errors.Is(err, etcdtxn.ErrTooLarge) {
		if u.work.hand.refused != nil && u.work.hand.refused.Reason == v1alpha1.ReasonTooLarge {
			return w.endApart(ctx, u, seen, err)
		}
		// It never fits: the claim gets no more, and others can have what it holds.
		u.work.hand.refused = &RefusedError{Reason: v1alpha1.ReasonTooLarge, Message: err.Error()}
		t.letGo()
		return soon, nil
	}
	key := limitKey{seen.claim.Namespace, p.Claimer}
	if retryAfter := throttledFor(err); retryAfter > 0 {
		w.committer.throttles.rejected(key, retryAfter, now)
	}
	if err != nil {
		return 0, err
	}
	if p.AddsSandboxes() {
		w.committer.throttles.accepted(key)
	}
	all, _ := p.Sandboxes()
	u.wrote(seen, written, all)
	u.work.wrote(p, now)
	if p.Ends() {
		w.known.forget(u, p.Claim.UID)
		return 0, nil
	}
	w.setUpRuntimes(u)
	w.wait(t, p)
	return soon, nil
}

// endApart lets go of what is starting for a claim whose end does not fit into one
// transaction with that; tooLarge says so. The end is written by the next turn.
func (w *finisher) endApart(ctx context.Context, u *unfinished, seen view, tooLarge error) (time.Duration, error) {
	starting := slices.DeleteFunc(slices.Clone(seen.held), func(sb *v1alpha1.Sandbox) bool {
		return !plan.IsStarting(sb) || sb.DeletionTimestamp != nil
	})
	if len(starting) == 0 {
		return 0, tooLarge
	}
	if _, err := w.letGoOf(ctx, starting); err != nil {
		return 0, err
	}
	u.incomplete()
	return soon, nil
}

// wait queues the claim for what it still needs after a plan. A throttled claim leaves the queue, so
// that other claims are served meanwhile.
func (w *finisher) wait(t *turn, p *plan.Plan) {
	if t.throttled > 0 {
		t.planner.stock.queue.Leave(t.waiter)
		return
	}
	t.planner.stock.queue.Wait(t.waiter, wantsOf(p.Claim, &t.state.Eligible, p.Wants, len(t.hand.taken)))
}

// shortest is the least time between two turns that the passing of time begins.
const shortest = 20 * time.Millisecond

// until is how long nothing changes by the passing of time alone after a plan.
func (w *finisher) until(u *unfinished, t *turn, p *plan.Plan, hold time.Duration) time.Duration {
	now := w.committer.clock.Now()
	next := []time.Duration{p.Until.Sub(now)}
	if hold > 0 {
		next = append(next, hold)
	}
	if t.throttled > 0 {
		next = append(next, t.throttled)
	}
	for _, pause := range []pause{t.hand.making, t.hand.looking} {
		if !pause.over(now) {
			next = append(next, pause.until.Sub(now))
		}
	}
	if t.state.Metadata.Behind {
		if at := u.work.metadata.next(); at.After(now) {
			next = append(next, at.Sub(now))
		}
	}
	if left := w.creatorWorksUntil(u).Sub(now); left > 0 {
		next = append(next, left)
	}
	return max(shortest, slices.Min(next))
}

// watchOthers keeps the place of a claim that another server works at, so that
// newcomers here do not overtake it, and returns when to look again whose it is.
func (w *finisher) watchOthers(u *unfinished, seen view, now time.Time) time.Duration {
	q := w.committer.queue
	u.work.hand.letGo(q)
	e := claims.EligiblePools(seen.claim, &w.planner.stock.sets)
	a := plan.Assess(plan.State{Claim: seen.claim, Start: u.start(), Held: seen.held, Eligible: e, Now: now})
	wants := a.Wants()
	if claims.CreatesOnNoStock(seen.claim) && e.CanMake() && !claims.HasCreateProblem(seen.claim) {
		wants.Need = 0 // it has sandboxes made
	}
	q.Watch(u.waiter, wantsOf(seen.claim, &e, wants, 0))
	if left := w.creatorWorksUntil(u).Sub(now); left > 0 {
		return max(shortest, left)
	}
	return 0 // until there are other servers
}

// confirm makes sure that those who are before newcomers in the lines of pools still
// wait: the watch may not have told yet that they are served.
func (w *finisher) confirm(ctx context.Context, sources []queue.Source) error {
	const most = 16
	for _, uid := range w.committer.queue.Before(sources, most) {
		u := w.known.of(uid)
		if u == nil {
			continue
		}
		seen := u.latest()
		if seen == nil || w.isMine(uid, u) {
			continue // this server knows
		}
		stored, err := w.committer.store.Claim(ctx, seen.Namespace, seen.Name)
		switch {
		case err != nil:
			return err
		case stored == nil || stored.UID != uid:
			u.claimIsGone()
			w.committer.queue.Leave(u.waiter)
		case !u.setClaim(stored) || claims.Unfinished(stored):
			continue
		default:
			w.committer.queue.Served(u.waiter, int(stored.Status.ClaimedReplicas))
		}
		w.known.turns.Add(uid)
	}
	return nil
}

// abandon ends the work on a claim that is gone: bound sandboxes stay with their
// users, but what was only being made for the claim is let go.
func (w *finisher) abandon(ctx context.Context, uid types.UID, u *unfinished, seen view) error {
	u.work.hand.letGo(w.committer.queue)
	w.committer.queue.Leave(u.waiter)
	isMine := w.isMine(uid, u)
	u.work.setups.keep(nil)
	if isMine {
		held, err := w.committer.store.SandboxesOf(ctx, seen.claim)
		if err != nil {
			return err
		}
		starting := slices.DeleteFunc(held, func(sb *v1alpha1.Sandbox) bool { return !plan.IsStarting(sb) || sb.DeletionTimestamp != nil })
		for len(starting) > 0 {
			n, err := w.letGoOf(ctx, starting)
			if err != nil {
				return fmt.Errorf("letting go of sandboxes of a deleted claim: %w", err)
			}
			starting = starting[n:]
		}
	}
	now := w.committer.clock.Now()
	ended := seen.claim
	if ended.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		ended = plan.Deleted(seen.claim, now)
		observeEnd(ended, now.Sub(u.start()))
	}
	u.mu.Lock()
	u.claim = ended
	u.mu.Unlock()
	w.known.forget(u, uid)
	return nil
}

// letGoOf lets go of the first sandboxes, as many as a transaction takes, and returns
// how many.
func (w *finisher) letGoOf(ctx context.Context, all []*v1alpha1.Sandbox) (int, error) {
	for n := min(len(all), letGoAtOnce); ; n = max(1, n/2) {
		txn := w.committer.store.Begin()
		for i, sb := range all[:n] {
			if err := txn.UpdateSandbox(ctx, plan.LetGo(sb, w.committer.clock.Now()), int64(version(sb))); err != nil {
				return 0, err
			}
			if txn.Bytes() > etcdtxn.MaxBytes/2 {
				n = i + 1
				break
			}
		}
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.committer.commitTimeout)
		err := txn.Commit(within)
		cancel()
		if n == 1 || !errors.Is(err, etcdtxn.ErrTooLarge) {
			return n, err
		}
	}
}
