// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// find takes and makes what a claim needs, as far as one transaction can take it.
func (a *attempt) find(ctx context.Context, assessment *plan.Assessment) (plan.Offer, error) {
	needs := assessment.Needs()
	switch {
	case needs.Explain:
		broken, err := a.explainBroken(ctx, assessment)
		return plan.Offer{Broken: broken}, err
	case needs.Take == 0:
		return plan.Offer{}, nil
	case a.throttled > 0:
		a.release()
		return plan.Offer{}, nil
	}
	if assessment.IsTrial() {
		if err := a.take(ctx, assessment, 1, false); err != nil {
			return plan.Offer{}, err
		}
		if len(a.reservation.taken) > 0 {
			assessment.SkipTrial(a.reservation.taken[0].prepared)
			needs = assessment.Needs()
		}
		a.releaseBeyond(needs.Take)
	}
	var broken error
	if needs.Make {
		var done bool
		var err error
		if done, broken, err = a.takeOrMake(ctx, assessment, needs.Take); done || err != nil {
			return a.offer(nil), err
		}
	}
	if assessment.FailsOnShortage() {
		// All that are missing, so that no other claim counts on the same ones.
		err := a.takeOrFail(ctx, assessment, assessment.Missing(), broken)
		return a.offer(broken), err
	}
	if err := a.take(ctx, assessment, needs.Take, claims.AllOrNothing(assessment.State.Claim)); err != nil {
		return plan.Offer{}, err
	}
	if len(a.reservation.taken) < needs.Take && claims.AllOrNothing(assessment.State.Claim) {
		a.release() // others can use them
	}
	return a.offer(broken), nil
}

// offer is what is reserved.
func (a *attempt) offer(broken error) plan.Offer {
	o := plan.Offer{Made: a.reservation.made, WouldMake: a.wouldMake, Broken: broken, Candidates: make([]plan.Candidate, 0, len(a.reservation.taken))}
	for _, c := range a.reservation.taken {
		o.Candidates = append(o.Candidates, *c.prepared)
	}
	return o
}

// takeOrFail takes n sandboxes for a claim that would rather fail than wait. broken is
// why none can be made for it, although it would take these.
func (a *attempt) takeOrFail(ctx context.Context, assessment *plan.Assessment, n int, broken error) error {
	if err := a.takeConfirmed(ctx, assessment, n, false); err != nil || len(a.reservation.taken) >= n {
		return err
	}
	available := len(a.reservation.taken)
	if !a.dry { // which has taken none
		available = min(n, available+a.planner.stock.Queue.Free(candidates.SourcesOf(&assessment.State.Eligible)))
	}
	return shortage(assessment.State.Claim, &assessment.State.Eligible, n, available, broken)
}

// takeConfirmed takes n sandboxes, and for a claim that is not stored yet looks again
// before there are too few. anyNumber says that any will do.
func (a *attempt) takeConfirmed(ctx context.Context, assessment *plan.Assessment, n int, anyNumber bool) error {
	atOnce := claims.AllOrNothing(assessment.State.Claim) && !anyNumber
	if err := a.take(ctx, assessment, n, atOnce); err != nil || len(a.reservation.taken) >= n || !assessment.State.New {
		return err
	}
	var err error
	if assessment.State.Eligible, err = a.planner.stock.LookAgain(ctx, assessment.State.Claim, assessment.State.Eligible, n-len(a.reservation.taken)); err != nil {
		return err
	}
	return a.take(ctx, assessment, n, atOnce)
}

// take reserves sandboxes of the pools until there are n or no more. A claim
// is queued for all that it lacks, also where n is what one transaction takes: it keeps its
// position while it writes.
func (a *attempt) take(ctx context.Context, assessment *plan.Assessment, n int, atOnce bool) error {
	sources := candidates.SourcesOf(&assessment.State.Eligible)
	if a.dry {
		a.reservation.taken = nil
		_, err := a.reserve(ctx, a.planner.stock.Queue.Peek(sources, n))
		return err
	}
	for len(a.reservation.taken) < n {
		lacks := n - len(a.reservation.taken)
		var got []poolindex.Candidate
		if a.waiter == nil {
			got = a.planner.stock.Queue.TakeFree(sources, lacks, atOnce)
		} else {
			a.planner.stock.Queue.Wait(a.waiter, candidates.WantsOf(assessment.State.Claim, &assessment.State.Eligible, plan.Wants{Need: assessment.Missing(), AtOnce: atOnce, Yields: assessment.Wants().Yields}, len(a.reservation.taken)))
			got = a.planner.stock.Queue.Take(a.waiter, lacks)
		}
		if len(got) == 0 {
			return nil
		}
		if left, err := a.reserve(ctx, got); err != nil {
			a.planner.stock.Queue.Release(left)
			return err
		}
	}
	return nil
}

// reserve adds candidates to the reservation. After an error it returns those that it has
// not looked at.
func (a *attempt) reserve(ctx context.Context, got []poolindex.Candidate) (left []poolindex.Candidate, err error) {
	for i, from := range got {
		as, err := a.preparer.Prepare(ctx, from)
		missing, isMissing := errors.AsType[candidates.NoTemplateError](err)
		switch {
		case err == nil:
			a.reservation.taken = append(a.reservation.taken, reservedSandbox{from, as})
		case isMissing && !a.dry:
			a.suspend(from, missing)
		case errors.Is(err, candidates.ErrGone) && !a.dry:
			a.planner.stock.Queue.Discard(from)
		case !isMissing && !errors.Is(err, candidates.ErrGone):
			return got[i:], err
		}
	}
	return nil, nil
}

// releaseBeyond releases all but the first n taken sandboxes. There can be more than n after a
// conflict on the sandbox that runs the claim's image.
func (a *attempt) releaseBeyond(n int) {
	if len(a.reservation.taken) <= n {
		return
	}
	kept := a.reservation.taken[:n:n]
	a.reservation.taken = a.reservation.taken[n:]
	a.release()
	a.reservation.taken = kept
}

// release releases what was taken and not bound. A dry attempt has taken nothing: others can take what
// it has looked at.
func (a *attempt) release() {
	if a.dry {
		a.reservation.taken = nil
		return
	}
	if a.waiter != nil && len(a.reservation.taken) > 0 {
		a.planner.stock.Queue.Leave(a.waiter) // or it would be woken by what it gives back
	}
	a.reservation.release(a.planner.stock.Queue)
}

// shortage is the error of a claim that would rather fail than wait and finds too few sandboxes. broken is why none can be made for it although it would take these.
func shortage(claim *v1alpha1.SandboxClaim, e *claims.Eligible, wanted, available int, broken error) error {
	switch p := e.Problem; {
	case p != nil:
		return &SourceError{*p}
	case broken != nil && (!e.Found || len(e.Pools) == 0):
		asked, _ := v1alpha1.AskedOf(claim)
		return &SourceError{claims.Problem{Field: claims.AskedField(claim), Name: asked, Message: broken.Error()}}
	}
	err := &ShortageError{Wanted: wanted, Available: available, RetryAfter: retryAfter}
	if e.OfTemplate {
		err.Template = e.Name
	} else {
		err.Set = e.Name
	}
	return err
}

// releaseStale releases what was taken in an earlier attempt and is stale by now.
func (a *attempt) releaseStale(ctx context.Context) error {
	kept := a.reservation.taken[:0:0]
	for i, got := range a.reservation.taken {
		err := a.preparer.CheckStale(ctx, got.candidate.Pool, got.prepared.Sandbox)
		missing, isStale := errors.AsType[candidates.NoTemplateError](err)
		switch {
		case isStale:
			a.suspend(got.candidate, missing)
		case err != nil:
			a.reservation.taken = append(kept, a.reservation.taken[i:]...)
			return err
		default:
			kept = append(kept, got)
		}
	}
	a.reservation.taken = kept
	return nil
}

// suspend releases a candidate, and keeps all that are like it from claims until a set or a template
// changes.
func (a *attempt) suspend(from poolindex.Candidate, why candidates.NoTemplateError) {
	a.planner.stock.Queue.Release([]poolindex.Candidate{from})
	a.planner.stock.Index.Suspend(from.Pool, from.Revision, why.AsOf)
}

// takeOrMake takes what there is in the pools, and makes sandboxes for the rest. done is
// false if not all can be made now, because of what broken says or because there is
// nothing to make them from any more.
func (a *attempt) takeOrMake(ctx context.Context, assessment *plan.Assessment, n int) (done bool, broken, err error) {
	if err := a.takeConfirmed(ctx, assessment, n, true); err != nil {
		return false, nil, err
	}
	lacks := n - len(a.reservation.taken)
	if lacks <= 0 {
		return true, nil, nil
	}
	if !assessment.State.Eligible.CanMake() {
		return false, nil, nil
	}
	if a.reservation.unknown != nil {
		return false, a.reservation.unknown, nil
	}
	if broken, err = a.loadModel(ctx, assessment); broken != nil || err != nil {
		return false, broken, err
	}
	if lacks, broken = a.makeLimit(assessment, lacks); broken != nil && lacks == 0 {
		return false, broken, nil
	}
	if a.dry {
		a.wouldMake = lacks
		return broken == nil, broken, nil
	}
	if err := a.makeFresh(ctx, assessment, lacks); err != nil {
		return false, nil, err
	}
	if a.reservation.unknown != nil {
		return false, a.reservation.unknown, nil
	}
	if claims.AllOrNothing(assessment.State.Claim) && len(a.reservation.taken)+len(a.reservation.made) < n {
		a.release() // others can use them until some can be made
	}
	return broken == nil, broken, nil
}
