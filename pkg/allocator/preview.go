// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Preview returns what Create would return now, and writes and takes nothing. A claim
// that would have to wait is shown Claiming with what it would have got. Errors:
// ErrSetNotFound, *RefusedError and *ShortageError, as from Create, and the store's.
func (a *Allocator) Preview(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	now := a.options.Clock.Now()
	claim = a.options.observed(ctx, claim, now)
	try := &attempt{finder: finder{planner: a.planner, reservation: newReservation(), dry: true}, state: plan.State{Claim: claim, New: true, Start: now}}
	try.reservation.room = claims.Replicas(claim) // all its transactions in one
	p, err := try.plan(ctx)
	if err != nil {
		return nil, a.refusal(ctx, claim, err)
	}
	warnOfRuntimes(ctx, claim, try.marks.WithoutRuntime())
	if n := try.wouldMake; n > 0 {
		if p.Claim.Status.Waiting == nil {
			p.Claim.Status.Waiting = &v1alpha1.ClaimWaiting{}
		}
		p.Claim.Status.Waiting.Starting += int32(n)
		p.Claim.Status.Message += claims.PreviewMessage(n)
	}
	return p.Claim, nil
}

// Check refuses, as Create would, a claim that would rather fail than wait and finds
// too few sandboxes, or would wait where too many do, or one that takes fresh sandboxes
// only and asks for too many, or adds what its template does not take, or names a pool of
// another template than it does (a *MismatchError). It takes nothing,
// so Create can find less. It is for what should not be done for nothing before that,
// such as charging a quota, which is not given back.
func (a *Allocator) Check(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	fails := claim.Spec.OnShortage == v1alpha1.ShortageFail ||
		!a.stock.Queue.HasRoom(claim.Namespace, claim.Annotations[v1alpha1.AnnotationClaimedBy], a.options.MaxWaiting)
	if !fails && claims.TakesWarm(claim) && !candidates.BringsAdditional(claim) && !namesBoth(claim) || plan.IsExpired(claim, a.options.Clock.Now()) {
		return nil
	}
	ctx, answered := observeCreate(ctx, a.options.Clock, &a.stock.Sets, claim)
	err := a.check(ctx, claim, fails)
	if err != nil {
		answered(nil, err) // otherwise it is Create that answers
	}
	return err
}

// check finds the refusals of a claim, which fails if there are too few sandboxes for it.
// Create reports what cannot be read now.
func (a *Allocator) check(ctx context.Context, claim *v1alpha1.SandboxClaim, fails bool) error {
	e, err := a.stock.Eligible(ctx, claim, true)
	if err != nil {
		return err
	}
	if err := checkMismatch(claim, &e); err != nil {
		return a.refusal(ctx, claim, err)
	}
	if err := a.planner.checkMetadata(ctx, claim, &e, true); err != nil {
		return a.refusal(ctx, claim, err)
	}
	if !claims.TakesWarm(claim) {
		if !e.CanMake() {
			return nil
		}
		if model, err := a.planner.confirmedModel(ctx, claim, &e); err == nil && model.Refused != nil {
			return a.refusal(ctx, claim, model.Refused)
		}
		return nil
	}
	wanted := claims.Replicas(claim)
	if !fails || a.stock.Queue.Free(candidates.SourcesOf(&e)) >= wanted {
		return nil
	}
	if e, err = a.stock.LookAgain(ctx, claim, e, wanted); err != nil {
		return err
	}
	available := a.stock.Queue.Free(candidates.SourcesOf(&e))
	if available >= wanted {
		return nil
	}
	switch enough, broken := a.wouldMake(ctx, claim, &e, wanted-available); {
	case enough:
		return nil
	case claim.Spec.OnShortage != v1alpha1.ShortageFail:
		return a.refusal(ctx, claim, &TooManyWaitingError{Namespace: claim.Namespace, Most: a.options.MaxWaiting, RetryAfter: retryAfter})
	default:
		return a.refusal(ctx, claim, shortage(claim, &e, wanted, available, broken))
	}
}

// wouldMake reports whether n sandboxes can be made for a claim that is not stored, as far
// as can be seen, and what is in the way of that.
func (a *Allocator) wouldMake(ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, n int) (enough bool, broken error) {
	if !claims.CreatesOnNoStock(claim) || !e.CanMake() {
		return false, nil
	}
	model, err := a.planner.confirmedModel(ctx, claim, e)
	if err == nil && model.Broken != nil {
		return false, model.Broken
	}
	if err == nil && model.Limit.Left(nil) < n {
		return false, model.Limit
	}
	return true, nil
}

// CheckSource fails with a *MismatchError for a claim of agent-sandbox that names a pool of
// another template than it names beside that. The pools are read as they are now before that.
func (a *Allocator) CheckSource(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	if !namesBoth(claim) {
		return nil
	}
	e, err := a.stock.Eligible(ctx, claim, true)
	if err != nil {
		return err
	}
	return checkMismatch(claim, &e)
}
