// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"math"
	"time"

	"k8s.io/component-base/tracing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Create stores a claim that was admitted, with the sandboxes that it asks for, and
// returns it as stored.
//
// What can be bound at once is in the first transaction. A claim that needs more
// waits, in the order in which claims came, for the sync window and never beyond ctx;
// then it is returned as it stands, Claiming, and the work continues in the background. If ctx
// is done before the first transaction, nothing is written; afterwards it only ends the wait.
//
// Errors: ErrClaimExists, ErrSetNotFound, *MismatchError, *ShortageError, *TooManyWaitingError,
// *RefusedError, ErrTooLarge, *ThrottledError and those of Options.Admit, after which nothing was
// written; ErrUnknownOutcome, the error of ctx, and those of the store.
func (a *Allocator) Create(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	ctx, answered := observeCreate(ctx, a.options.Clock, &a.stock.Sets, claim)
	created, err := a.create(ctx, claim)
	answered(created, err)
	return created, err
}

func (a *Allocator) create(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	now := a.options.Clock.Now()
	claim = a.options.withFirstObserved(ctx, claim, now)
	c := &creation{unfinishedClaims: a.finisher.unfinished, claim: claim, now: now, reservation: newReservation()}
	stored, err := a.planAndCommit(ctx, c)
	if err != nil {
		c.end()
		return nil, a.supplier.refusal(ctx, claim, err)
	}
	u := c.unfinished
	// Without u, an unfinished claim was read after a transaction without an answer, and another server
	// has worked on it since: the watch reports it.
	if !claims.Unfinished(stored) || u == nil {
		c.end()
		c.reservation.notDone.Warn(ctx, claim)
		return stored, nil
	}
	a.finisher.setUpRuntimes(u)
	isHopeless := u.outlook.hopeless // read before begin, because workers write it after that
	c.unfinishedClaims.begin(u, claim.UID)
	if !isHopeless && a.reconciler.IsRunning() {
		a.await(ctx, u)
	}
	notDone := u.notDone()
	notDone.Warn(ctx, claim)
	return u.latest().DeepCopy(), nil
}

// creation is a claim that is being created.
type creation struct {
	unfinishedClaims *unfinishedClaims
	claim            *v1alpha1.SandboxClaim
	// now is when the create began.
	now         time.Time
	reservation *reservation
	// unfinished is the claim in unfinishedClaims; nil before open.
	unfinished *unfinishedClaim
}

// open adds the claim to those that are not at their end. It is called before such a claim is stored,
// so that no event of it is lost. Most claims end with their first transaction, and are never there.
func (c *creation) open(ctx context.Context) *unfinishedClaim {
	if c.unfinished == nil {
		c.unfinished = c.unfinishedClaims.open(ctx, c.claim, c.now, c.reservation)
	}
	return c.unfinished
}

// end ends the work on the claim, and releases what was not bound.
func (c *creation) end() {
	if c.unfinished != nil {
		c.unfinishedClaims.forget(c.unfinished, c.claim.UID)
	} else {
		c.reservation.release(c.unfinishedClaims.queue)
	}
}

// planAndCommit writes the first state of the claim, with what can be bound now, or fails and
// leaves nothing behind.
func (a *Allocator) planAndCommit(ctx context.Context, c *creation) (*v1alpha1.SandboxClaim, error) {
	try := &attempt{finder: finder{supplier: a.supplier, reservation: c.reservation}, state: plan.State{Claim: c.claim, New: true, Start: c.now}}
	if claims.Mounts(c.claim) {
		try.state.Setups, _ = a.finisher.runtimes.Known(c.open(ctx).work.setups, nil)
	}
	isDetached := false
	for {
		if err := ctx.Err(); err != nil {
			return nil, err // nothing is written for a caller that is gone
		}
		p, err := try.plan(ctx)
		if err != nil {
			return nil, err
		}
		if !p.Ends() {
			if err := a.join(c.open(ctx), &try.state.Eligible, p); err != nil {
				return nil, err
			}
		}
		stored, err := a.committer.create(ctx, p, c.reservation)
		if err == nil {
			if c.unfinished != nil {
				c.unfinished.recordCreate(stored, &try.state, p, c.now)
			}
			return stored, nil
		}
		if c.unfinished != nil {
			c.unfinished.waiter.Leave() // a newcomer gets only what no claim in the queue waits for, itself included
		}
		switch {
		case !errors.Is(err, storage.ErrReplan):
			return nil, err
		case errors.Is(err, errNotWritten) && !isDetached: // a transaction was sent, so a caller that leaves changes nothing any more
			var cancel context.CancelFunc
			ctx, cancel = storage.Detached(ctx, settleTimeout)
			defer cancel()
			isDetached = true
		}
	}
}

// join queues a claim that is about to be stored for what it lacks. From then on
// newcomers do not overtake it. One that only waits for its next transaction is not
// refused, however many wait.
func (a *Allocator) join(u *unfinishedClaim, e *claims.Eligible, p *plan.Plan) error {
	if p.Wants.Need == 0 || makesTheRest(e, p) {
		return nil
	}
	wants, most := candidates.WantsOf(p.Claim, e, p.Wants, 0), a.options.MaxWaiting
	if a.stock.Queue.Free(wants.Sources) >= wants.Need {
		most = math.MaxInt
	}
	if !u.waiter.Join(wants, most) {
		return &TooManyWaitingError{Namespace: p.Claim.Namespace, Most: a.options.MaxWaiting, RetryAfter: retryAfter}
	}
	return nil
}

// makesTheRest reports whether what a claim lacks after a plan is made for it.
func makesTheRest(e *claims.Eligible, p *plan.Plan) bool {
	return claims.CreatesOnNoStock(p.Claim) && e.CanMake() && p.Broken == nil
}

// await waits for the claim's end within the sync window, and not beyond ctx, less
// what is needed to answer in time. Each call that waits holds a seat that others need,
// so if too many wait already, it does not wait.
func (a *Allocator) await(ctx context.Context, u *unfinishedClaim) {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > int64(a.options.MaxWaitingCreates) {
		return
	}
	_, span := tracing.Start(ctx, "Wait for sandboxes")
	defer span.End(storage.Slow)
	window := a.options.SyncWindow
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(a.options.Clock.Now())
		window = min(window, left-min(left/5, time.Second))
	}
	timer := a.options.Clock.NewTimer(max(0, window))
	defer timer.Stop()
	select {
	case <-u.done:
	case <-timer.C():
	case <-ctx.Done():
	}
}
