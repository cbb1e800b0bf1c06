// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// finder finds sandboxes for one claim in one attempt: it takes them from pools, and makes them (make.go).
type finder struct {
	supplier    *supplier
	reservation *reservation
	// waiter is the claim's place in the queue; nil for a claim that is not stored yet.
	waiter *queue.Waiter
	// dry is set if the attempt takes nothing and makes nothing, as in a preview.
	dry bool
	// throttled is for how long the attempt takes nothing and makes nothing, because the write
	// limits would reject that.
	throttled time.Duration

	marks    *plan.Marks
	preparer *candidates.Preparer
	// assessment says what the claim needs; nil before it is known.
	assessment *plan.Assessment
	// model is what is made for the claim; nil before it was looked up.
	model *candidates.Model
	// wouldMake is how many sandboxes a dry attempt would make.
	wouldMake int
}

// find takes and makes what a claim needs, as far as one transaction can take it.
func (f *finder) find(ctx context.Context) (plan.Offer, error) {
	needs := f.assessment.Needs()
	switch {
	case needs.Explain:
		broken, err := f.explainBroken(ctx)
		return plan.Offer{Broken: broken}, err
	case needs.Take == 0:
		return plan.Offer{}, nil
	case f.throttled > 0:
		f.release()
		return plan.Offer{}, nil
	}
	if f.assessment.IsTrial() {
		if err := f.take(ctx, 1, false); err != nil {
			return plan.Offer{}, err
		}
		if len(f.reservation.taken) > 0 {
			f.assessment.SkipTrial(f.reservation.taken[0].prepared)
			needs = f.assessment.Needs()
		}
		f.releaseBeyond(needs.Take)
	}
	var broken error
	if needs.Make {
		var done bool
		var err error
		if done, broken, err = f.takeOrMake(ctx, needs.Take); done || err != nil {
			return f.reservation.offer(f.wouldMake, nil), err
		}
	}
	if f.assessment.State.FailsOnShortage() {
		// All that are missing, so that no other claim counts on the same ones.
		err := f.takeOrFail(ctx, f.assessment.Missing(), broken)
		return f.reservation.offer(f.wouldMake, broken), err
	}
	atOnce := claims.AllOrNothing(f.assessment.State.Claim)
	if err := f.take(ctx, needs.Take, atOnce); err != nil {
		return plan.Offer{}, err
	}
	if atOnce && len(f.reservation.taken) < needs.Take {
		f.release() // others can use them
	}
	return f.reservation.offer(f.wouldMake, broken), nil
}

// takeOrFail takes n sandboxes for a claim with onShortage Fail. broken is why none can be made for
// it, although it would take these.
func (f *finder) takeOrFail(ctx context.Context, n int, broken error) error {
	s := &f.assessment.State
	if err := f.takeConfirmed(ctx, n, claims.AllOrNothing(s.Claim)); err != nil || len(f.reservation.taken) >= n {
		return err
	}
	available := len(f.reservation.taken)
	if !f.dry { // which has taken none
		available = min(n, available+f.supplier.stock.Queue.Free(candidates.SourcesOf(&s.Eligible)))
	}
	return shortage(s.Claim, &s.Eligible, n, available, broken)
}

// takeConfirmed takes n sandboxes, or with atOnce n or none. For a claim that is not stored yet it looks
// again before there are too few.
func (f *finder) takeConfirmed(ctx context.Context, n int, atOnce bool) (err error) {
	s := &f.assessment.State
	if err := f.take(ctx, n, atOnce); err != nil || len(f.reservation.taken) >= n || !s.New {
		return err
	}
	if s.Eligible, err = f.supplier.stock.LookAgain(ctx, s.Claim, s.Eligible, n-len(f.reservation.taken)); err != nil {
		return err
	}
	return f.take(ctx, n, atOnce)
}

// take reserves sandboxes of the pools until there are n or no more. A claim
// is queued for all that it lacks, also where n is what one transaction takes: it keeps its
// position while it writes.
func (f *finder) take(ctx context.Context, n int, atOnce bool) error {
	s, q := &f.assessment.State, f.supplier.stock.Queue
	sources := candidates.SourcesOf(&s.Eligible)
	if f.dry {
		f.reservation.taken = nil
		_, err := f.reserve(ctx, q.Peek(sources, n))
		return err
	}
	for len(f.reservation.taken) < n {
		lacks := n - len(f.reservation.taken)
		var got []poolindex.Candidate
		if f.waiter == nil {
			got = q.TakeFree(sources, lacks, atOnce)
		} else {
			wants := plan.Wants{Need: f.assessment.Missing(), AtOnce: atOnce, Yields: f.assessment.Wants().Yields}
			f.waiter.Wait(candidates.WantsOf(s.Claim, &s.Eligible, wants, len(f.reservation.taken)))
			got = f.waiter.Take(lacks)
		}
		if len(got) == 0 {
			return nil
		}
		if left, err := f.reserve(ctx, got); err != nil {
			q.Release(left)
			return err
		}
	}
	return nil
}

// reserve adds candidates to the reservation. After an error it returns those that it has
// not looked at.
func (f *finder) reserve(ctx context.Context, got []poolindex.Candidate) (left []poolindex.Candidate, err error) {
	for i, from := range got {
		as, err := f.preparer.Prepare(ctx, from)
		missing, isMissing := errors.AsType[candidates.NoTemplateError](err)
		switch {
		case err == nil:
			f.reservation.taken = append(f.reservation.taken, reservedSandbox{from, as})
		case isMissing && !f.dry:
			f.suspend(from, missing)
		case errors.Is(err, candidates.ErrGone) && !f.dry:
			f.supplier.stock.Queue.Discard(from)
		case !isMissing && !errors.Is(err, candidates.ErrGone):
			return got[i:], err
		}
	}
	return nil, nil
}

// releaseBeyond releases all but the first n taken sandboxes. There can be more than n after a
// conflict on the sandbox that runs the claim's image.
func (f *finder) releaseBeyond(n int) {
	if len(f.reservation.taken) <= n {
		return
	}
	kept := f.reservation.taken[:n:n]
	f.reservation.taken = f.reservation.taken[n:]
	f.release()
	f.reservation.taken = kept
}

// release releases what was taken and not bound. A dry attempt has taken nothing: others can take what
// it has looked at.
func (f *finder) release() {
	if f.dry {
		f.reservation.taken = nil
		return
	}
	if f.waiter != nil && len(f.reservation.taken) > 0 {
		f.waiter.Leave() // or it would be woken by what it gives back
	}
	f.reservation.release(f.supplier.stock.Queue)
}

// shortage returns the error of a claim with onShortage Fail that finds too few sandboxes. broken is why
// none can be made for it, although it would take these.
func shortage(claim *v1alpha1.SandboxClaim, e *claims.Eligible, wanted, available int, broken error) error {
	switch p := e.Problem; {
	case p != nil:
		return &SourceError{*p}
	case broken != nil && (!e.Found || len(e.Pools) == 0):
		asked, _ := v1alpha1.AskedOf(claim)
		return &SourceError{claims.Problem{Field: claims.AskedField(claim), Name: asked, Message: broken.Error()}}
	}
	err := &ShortageError{Wanted: wanted, Available: available}
	if e.OfTemplate {
		err.Template = e.Name
	} else {
		err.Set = e.Name
	}
	return err
}

// releaseStale releases what was taken in an earlier attempt and is stale by now.
func (f *finder) releaseStale(ctx context.Context) error {
	kept := f.reservation.taken[:0:0]
	for i, got := range f.reservation.taken {
		err := f.preparer.CheckStale(ctx, got.candidate.Pool, got.prepared.Sandbox)
		missing, isStale := errors.AsType[candidates.NoTemplateError](err)
		switch {
		case isStale:
			f.suspend(got.candidate, missing)
		case err != nil:
			f.reservation.taken = append(kept, f.reservation.taken[i:]...)
			return err
		default:
			kept = append(kept, got)
		}
	}
	f.reservation.taken = kept
	return nil
}

// suspend releases a candidate, and keeps all that are like it from claims until a set or a template
// changes.
func (f *finder) suspend(from poolindex.Candidate, why candidates.NoTemplateError) {
	f.supplier.stock.Queue.Release([]poolindex.Candidate{from})
	f.supplier.stock.Index.Suspensions.Suspend(from.Pool, from.Revision, why.AsOf)
}

// takeOrMake takes what there is in the pools, and makes sandboxes for the rest. done is
// false if not all can be made now, because of what broken says or because there is
// nothing to make them from any more.
func (f *finder) takeOrMake(ctx context.Context, n int) (done bool, broken, err error) {
	if err := f.takeConfirmed(ctx, n, false); err != nil {
		return false, nil, err
	}
	lacks := n - len(f.reservation.taken)
	if lacks <= 0 {
		return true, nil, nil
	}
	if !f.assessment.State.Eligible.CanMake() {
		return false, nil, nil
	}
	if f.reservation.identityErr != nil {
		return false, f.reservation.identityErr, nil
	}
	if broken, err = f.loadModel(ctx); broken != nil || err != nil {
		return false, broken, err
	}
	if lacks, broken = f.makeLimit(lacks); broken != nil && lacks == 0 {
		return false, broken, nil
	}
	if f.dry {
		f.wouldMake = lacks
		return broken == nil, broken, nil
	}
	if err := f.makeFresh(ctx, lacks); err != nil {
		return false, nil, err
	}
	if f.reservation.identityErr != nil {
		return false, f.reservation.identityErr, nil
	}
	if claims.AllOrNothing(f.assessment.State.Claim) && len(f.reservation.taken)+len(f.reservation.made) < n {
		f.release() // others can use them until some can be made
	}
	return broken == nil, broken, nil
}
