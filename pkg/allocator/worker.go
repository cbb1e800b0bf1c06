// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/etcdtxn"
)

const (
	// handOverAfter is how much longer than the sync window the server that created a
	// claim works on it. Then the one does that all agree on.
	handOverAfter = 5 * time.Second
	// workers is how many claims a server works at at the same time. Most of them wait,
	// for etcd or for admission, and must not keep others from their turn.
	workers = 512
	// letGoAtOnce is how many sandboxes of a deleted claim are let go in one transaction.
	letGoAtOnce = 100
)

// worker brings claims to their end that are not finished in their create call: also
// after a restart, also those of servers that are gone. It is level-triggered: a turn
// of a claim looks at what is known of it, writes what can be written, and says when to
// look again; news only begin a turn. One server works on a claim at a time, and a
// transaction compares the claim's revision, so that two at one claim cost a retry.
type worker struct {
	*planner
	*committer
	passer     *passer
	syncWindow time.Duration
	// prefers says which claims are this server's; nil, or a nil function, is all.
	prefers atomic.Pointer[func(namespace, name string) bool]
	// peers are the servers of the store; nil before they are known.
	peers atomic.Pointer[peers]
	// known are the claims that are not at their end.
	known *unfinishedClaims
	// share keeps workers free of the turns of one namespace, and setupShare the setting up
	// of runtimes from being one namespace's.
	share, setupShare *workShare
	setUp             setupFunc
	// tellings bounds the writes that do nothing but tell claims of their wait.
	tellings *tellings

	mu sync.Mutex
	// ctx is that of run; nil before and after.
	ctx     context.Context
	running sync.WaitGroup
}

func newWorker(p *planner, c *committer, syncWindow time.Duration, setUp setupFunc) *worker {
	if setUp == nil {
		setUp = noSetUp
	}
	known := newUnfinishedClaims(c.clock, c.queue)
	add := func(uid types.UID) { known.turns.Add(uid) }
	return &worker{
		planner: p, committer: c, passer: &passer{p.templates, c}, syncWindow: syncWindow, known: known,
		share: newWorkShare(workers, add), setupShare: newWorkShare(setupsAtOnce, add), setUp: setUp,
		tellings: newTellings(),
	}
}

// run works until ctx is done, and returns when everything it started has stopped.
func (w *worker) run(ctx context.Context) {
	w.mu.Lock()
	w.ctx = ctx
	w.mu.Unlock()
	for range workers {
		w.running.Go(func() {
			for w.next(ctx) {
			}
		})
	}
	ticker := w.committer.clock.NewTicker(time.Second)
	defer ticker.Stop()
	told := w.committer.clock.Now()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case now := <-ticker.C():
			w.committer.queue.Tick()
			w.committer.throttles.removeExpired(now)
			if now.Sub(told) >= tellFrontEvery {
				w.committer.queue.WakeFront(tellFront)
				told = now
			}
		}
	}
	w.known.turns.ShutDown()
	w.mu.Lock()
	w.ctx = nil
	w.mu.Unlock()
	w.running.Wait()
}

// isRunning reports whether this server does background work.
func (w *worker) isRunning() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ctx != nil
}

// background runs f, which ends with its context, or returns false if this server does
// no background work.
func (w *worker) background(f func(context.Context)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx := w.ctx
	if ctx == nil {
		return false
	}
	w.running.Go(func() { f(ctx) })
	return true
}

// isMine reports whether this server works on a claim. The one that created it does,
// for as long as that may be answered and a little longer, and then the one that all
// agree on. One that has set up runtimes for it, or is about it, goes on until that is
// written.
func (w *worker) isMine(uid types.UID, u *unfinished) bool {
	prefers := w.prefers.Load()
	if prefers == nil || *prefers == nil {
		return true // it is alone
	}
	if u.work != nil && (u.work.setups.inHand() || w.hasMarked(u)) {
		return true
	}
	if w.committer.clock.Now().Before(w.creatorWorksUntil(u)) {
		return !u.created.IsZero()
	}
	return (*prefers)("", string(uid))
}

// hasMarked reports whether a sandbox that the claim holds is marked as one into which
// this work on the claim mounts volumes. Nobody else does then.
func (w *worker) hasMarked(u *unfinished) bool {
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

// next does the next turn. It returns false when there are no more.
func (w *worker) next(ctx context.Context) bool {
	turns := w.known.turns
	uid, shutdown := turns.Get()
	if shutdown {
		return false
	}
	defer turns.Done(uid)
	defer w.setupShare.wake() // it may have woken this turn for a setup that is not needed
	u := w.known.toWorkAt(uid)
	if u == nil || ctx.Err() != nil {
		w.share.wake()
		return true
	}
	if !w.share.begin(u.key.Namespace, uid) {
		return true
	}
	defer w.share.end(u.key.Namespace)
	traced := ctx
	if u.work.span != nil {
		traced = trace.ContextWithSpan(ctx, u.work.span)
	}
	again, err := w.turn(traced, uid, u)
	for range tries {
		if errors.Is(err, errAgain) {
			again, err = w.turn(traced, uid, u)
		}
	}
	switch {
	case ctx.Err() != nil: // it goes on after a restart, or on another server
	case errors.Is(err, errAgain):
		turns.AddRateLimited(uid)
	case errors.Is(err, errClaimMoved):
		u.incomplete() // what is known of it may be wrong
		turns.AddRateLimited(uid)
	case throttledFor(err) > 0:
		w.committer.queue.Leave(u.waiter)
		u.work.letGo(w.committer.queue) // others can have it meanwhile
		turns.Forget(uid)
		turns.AddAfter(uid, w.throttleDelay(u, throttledFor(err)))
	case err != nil:
		klog.FromContext(ctx).Error(err, "Claiming goes on after an error", "claim", klog.KObj(u.latest()))
		u.incomplete() // whatever was written, the store knows
		w.committer.queue.Leave(u.waiter)
		turns.AddRateLimited(uid)
	case again == soon:
		turns.Add(uid)
	case again > 0:
		turns.Forget(uid)
		turns.AddAfter(uid, again)
	}
	return true
}

// throttleDelay returns how long a throttled claim waits, at most until its deadline: ending a claim
// is never throttled.
func (w *worker) throttleDelay(u *unfinished, throttled time.Duration) time.Duration {
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

// soon is when the next turn is after one that wrote something.
const soon = time.Nanosecond

// turn brings a claim forward, and returns after what time to do so again; 0 means
// when there is news.
func (w *worker) turn(ctx context.Context, uid types.UID, u *unfinished) (again time.Duration, err error) {
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
	if t.state.Setups, hopeless = w.setupsOf(u, seen.held); u.work.refused == nil {
		u.work.refused = hopeless
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
func (w *worker) canAdvance(u *unfinished, seen view, now time.Time) bool {
	return !now.Before(plan.Deadline(seen.claim, u.start())) || seen.claim.Status.ObservedGeneration != seen.claim.Generation ||
		slices.ContainsFunc(seen.held, plan.IsStarting)
}

// holdBack returns for how long a plan is not written, of which the writes that only tell
// are spaced.
func (w *worker) holdBack(u *unfinished, p *plan.Plan, now time.Time) time.Duration {
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
func (w *worker) write(ctx context.Context, u *unfinished, seen view, t *turn, p *plan.Plan, now time.Time) (time.Duration, error) {
	written, err := w.committer.write(ctx, false, p, &u.work.hand)
	if errors.Is(err, ErrTooLarge) || errors.Is(err, etcdtxn.ErrTooLarge) {
		if u.work.refused != nil && u.work.refused.Reason == v1alpha1.ReasonTooLarge {
			return w.endApart(ctx, u, seen, err)
		}
		// It never fits: the claim gets no more, and others can have what it holds.
		u.work.refused = &RefusedError{Reason: v1alpha1.ReasonTooLarge, Message: err.Error()}
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
func (w *worker) endApart(ctx context.Context, u *unfinished, seen view, tooLarge error) (time.Duration, error) {
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
func (w *worker) wait(t *turn, p *plan.Plan) {
	if t.throttled > 0 {
		t.stock.queue.Leave(t.waiter)
		return
	}
	t.stock.queue.Wait(t.waiter, wantsOf(p.Claim, &t.state.Eligible, p.Wants, len(t.taken)))
}

// shortest is the least time between two turns that the passing of time begins.
const shortest = 20 * time.Millisecond

// until is how long nothing changes by the passing of time alone after a plan.
func (w *worker) until(u *unfinished, t *turn, p *plan.Plan, hold time.Duration) time.Duration {
	now := w.committer.clock.Now()
	next := []time.Duration{p.Until.Sub(now)}
	if hold > 0 {
		next = append(next, hold)
	}
	if t.throttled > 0 {
		next = append(next, t.throttled)
	}
	for _, pause := range []pause{t.making, t.looking} {
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
func (w *worker) watchOthers(u *unfinished, seen view, now time.Time) time.Duration {
	q := w.committer.queue
	u.work.letGo(q)
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
func (w *worker) confirm(ctx context.Context, sources []queue.Source) error {
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
func (w *worker) abandon(ctx context.Context, uid types.UID, u *unfinished, seen view) error {
	u.work.letGo(w.committer.queue)
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
func (w *worker) letGoOf(ctx context.Context, all []*v1alpha1.Sandbox) (int, error) {
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
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.commitTimeout)
		err := txn.Commit(within)
		cancel()
		if n == 1 || !errors.Is(err, etcdtxn.ErrTooLarge) {
			return n, err
		}
	}
}
