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
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Create stores a claim that was admitted, with the sandboxes that it asks for, and
// returns it as stored.
//
// What can be bound at once is in the first transaction. A claim that needs more
// waits, in the order in which claims came, for the sync window and never beyond ctx;
// then it is returned as it stands, Claiming, and goes on in the background. A ctx that
// is done before the first transaction costs nothing; afterwards it only ends the
// waiting.
//
// Errors: ErrClaimExists, ErrSetNotFound, *MismatchError, *ShortageError, *TooManyWaitingError,
// *RefusedError, ErrTooLarge, *ThrottledError, those of Options.Admit (nothing was written in all these cases), ErrUnknownOutcome,
// the error of ctx, and those of the store.
func (a *Allocator) Create(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	ctx, answered := observeCreate(ctx, a.options.Clock, &a.stock.Sets, claim)
	created, err := a.create(ctx, claim)
	answered(created, err)
	return created, err
}

func (a *Allocator) create(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	now := a.options.Clock.Now()
	claim = a.options.observed(ctx, claim, now)
	unfinished := a.finisher.unfinished
	u := unfinished.open(ctx, claim, now)
	stored, waits, err := a.first(ctx, u, claim, now)
	switch {
	case err != nil:
		unfinished.forget(u, claim.UID)
		return nil, a.planner.refusal(ctx, claim, err)
	case !claims.Unfinished(stored):
		unfinished.forget(u, claim.UID)
		warn(ctx, claim, u)
		return stored, nil
	}
	a.finisher.runtimes.setUpRuntimes(u)
	unfinished.begin(u, claim.UID)
	if waits && a.reconciler.IsRunning() {
		a.await(ctx, u)
	}
	warn(ctx, claim, u)
	return u.latest().DeepCopy(), nil
}

// first writes the claim's first state, with what can be bound now, or fails and
// leaves nothing behind. It reports whether it is worth waiting for more.
func (a *Allocator) first(ctx context.Context, u *unfinishedClaim, claim *v1alpha1.SandboxClaim, now time.Time) (*v1alpha1.SandboxClaim, bool, error) {
	try := &attempt{finder: finder{planner: a.planner, reservation: &u.work.reservation}, state: plan.State{Claim: claim, New: true, Start: now}}
	if claims.Mounts(claim) {
		try.state.Setups, _ = a.finisher.runtimes.setupsOf(u, nil)
	}
	isDetached := false
	for {
		if err := ctx.Err(); err != nil {
			return nil, false, err // a caller that is gone costs nothing
		}
		p, err := try.plan(ctx)
		if err != nil {
			return nil, false, err
		}
		if err := a.join(u, &try.state.Eligible, p); err != nil {
			return nil, false, err
		}
		stored, err := a.committer.create(ctx, p, try.finder.reservation)
		if err == nil {
			u.recordCreate(stored, &try.state, p, now)
			return stored, !u.outlook.hopeless, nil
		}
		u.waiter.Leave() // or the next plan would be behind it
		switch {
		case !errors.Is(err, errReplan):
			return nil, false, err
		case errors.Is(err, errNotWritten) && !isDetached: // it was on its way, so it is seen through
			var cancel context.CancelFunc
			ctx, cancel = detached(ctx, resolveTimeout)
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
// so with too many of them it does not wait: those who came before are served before.
func (a *Allocator) await(ctx context.Context, u *unfinishedClaim) {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > int64(a.options.MaxWaitingCreates) {
		return
	}
	_, span := tracing.Start(ctx, "Wait for sandboxes")
	defer span.End(slow)
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
