// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// find takes and makes what a claim needs, as far as one transaction can take it.
func (t *turn) find(ctx context.Context, a *plan.Assessment) (plan.Offer, error) {
	needs := a.Needs()
	switch {
	case needs.Explain:
		broken, err := t.whyBroken(ctx, a)
		return plan.Offer{Broken: broken}, err
	case needs.Take == 0:
		return plan.Offer{}, nil
	case t.throttled > 0:
		t.letGo()
		return plan.Offer{}, nil
	}
	if a.IsTrial() {
		if err := t.take(ctx, a, 1, false); err != nil {
			return plan.Offer{}, err
		}
		if len(t.hand.taken) > 0 {
			a.SkipTrial(t.hand.taken[0].as)
			needs = a.Needs()
		}
		t.returnBeyond(needs.Take)
	}
	var broken error
	if needs.Make {
		var done bool
		var err error
		if done, broken, err = t.fillUp(ctx, a, needs.Take); done || err != nil {
			return t.offer(nil), err
		}
	}
	if a.FailsOnShortage() {
		// All that are missing, so that no other claim counts on the same ones.
		err := t.takeOrFail(ctx, a, a.Missing(), broken)
		return t.offer(broken), err
	}
	if err := t.take(ctx, a, needs.Take, claims.AllOrNothing(a.State.Claim)); err != nil {
		return plan.Offer{}, err
	}
	if len(t.hand.taken) < needs.Take && claims.AllOrNothing(a.State.Claim) {
		t.letGo() // others can use them
	}
	return t.offer(broken), nil
}

// offer is what is reserved.
func (t *turn) offer(broken error) plan.Offer {
	o := plan.Offer{Made: t.hand.made, WouldMake: t.wouldMake, Broken: broken, Candidates: make([]plan.Candidate, 0, len(t.hand.taken))}
	for _, c := range t.hand.taken {
		o.Candidates = append(o.Candidates, *c.as)
	}
	return o
}

// takeOrFail takes n sandboxes for a claim that would rather fail than wait. broken is
// why none can be made for it, although it would take these.
func (t *turn) takeOrFail(ctx context.Context, a *plan.Assessment, n int, broken error) error {
	if err := t.takeSurely(ctx, a, n, false); err != nil || len(t.hand.taken) >= n {
		return err
	}
	available := len(t.hand.taken)
	if !t.dry { // which has taken none
		available = min(n, available+t.planner.stock.queue.Free(sourcesOf(&a.State.Eligible)))
	}
	return shortage(a.State.Claim, &a.State.Eligible, n, available, broken)
}

// takeSurely takes n sandboxes, and for a claim that is not stored yet looks again
// before there are too few. anyNumber says that any will do.
func (t *turn) takeSurely(ctx context.Context, a *plan.Assessment, n int, anyNumber bool) error {
	atOnce := claims.AllOrNothing(a.State.Claim) && !anyNumber
	if err := t.take(ctx, a, n, atOnce); err != nil || len(t.hand.taken) >= n || !a.State.New {
		return err
	}
	var err error
	if a.State.Eligible, err = t.planner.stock.lookAgain(ctx, a.State.Claim, a.State.Eligible, n-len(t.hand.taken)); err != nil {
		return err
	}
	return t.take(ctx, a, n, atOnce)
}

// take reserves sandboxes of the pools until there are n or no more. A claim
// stands in line for all that it lacks, also where n is what one transaction takes: it
// keeps its place while it writes.
func (t *turn) take(ctx context.Context, a *plan.Assessment, n int, atOnce bool) error {
	sources := sourcesOf(&a.State.Eligible)
	if t.dry {
		t.hand.taken = nil
		_, err := t.prepare(ctx, t.planner.stock.queue.Peek(sources, n))
		return err
	}
	for len(t.hand.taken) < n {
		lacks := n - len(t.hand.taken)
		var got []poolindex.Candidate
		if t.waiter == nil {
			got = t.planner.stock.queue.TakeFree(sources, lacks, atOnce)
		} else {
			t.planner.stock.queue.Wait(t.waiter, wantsOf(a.State.Claim, &a.State.Eligible, plan.Wants{Need: a.Missing(), AtOnce: atOnce, Yields: a.Wants().Yields}, len(t.hand.taken)))
			got = t.planner.stock.queue.Take(t.waiter, lacks)
		}
		if len(got) == 0 {
			return nil
		}
		if left, err := t.prepare(ctx, got); err != nil {
			t.planner.stock.queue.Release(left)
			return err
		}
	}
	return nil
}

// prepare adds candidates to the reservation. After an error it returns those that it has
// not looked at.
func (t *turn) prepare(ctx context.Context, got []poolindex.Candidate) (left []poolindex.Candidate, err error) {
	for i, from := range got {
		as, err := t.candidates.prepare(ctx, from)
		missing, isMissing := errors.AsType[noTemplateError](err)
		switch {
		case err == nil:
			t.hand.taken = append(t.hand.taken, taken{from, as})
		case isMissing && !t.dry:
			t.suspend(from, missing)
		case errors.Is(err, errMoved) && !t.dry:
			t.planner.stock.queue.Discard(from)
		case !isMissing && !errors.Is(err, errMoved):
			return got[i:], err
		}
	}
	return nil, nil
}

// returnBeyond releases all but the first n taken sandboxes. There can be more than n after a
// conflict on the sandbox that runs the claim's image.
func (t *turn) returnBeyond(n int) {
	if len(t.hand.taken) <= n {
		return
	}
	kept := t.hand.taken[:n:n]
	t.hand.taken = t.hand.taken[n:]
	t.letGo()
	t.hand.taken = kept
}

// letGo releases what was taken and not bound. A dry attempt has taken nothing: others can take what
// it has looked at.
func (t *turn) letGo() {
	if t.dry {
		t.hand.taken = nil
		return
	}
	if t.waiter != nil && len(t.hand.taken) > 0 {
		t.planner.stock.queue.Leave(t.waiter) // or it would be woken by what it gives back
	}
	t.hand.letGo(t.planner.stock.queue)
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
	err := &ShortageError{Wanted: wanted, Available: available}
	if e.OfTemplate {
		err.Template = e.Name
	} else {
		err.Set = e.Name
	}
	return err
}

// dropStale releases what was taken in an earlier attempt and is stale by now.
func (t *turn) dropStale(ctx context.Context) error {
	kept := t.hand.taken[:0:0]
	for i, got := range t.hand.taken {
		err := t.candidates.checkStale(ctx, got.from.Pool, got.as.Sandbox)
		missing, isStale := errors.AsType[noTemplateError](err)
		switch {
		case isStale:
			t.suspend(got.from, missing)
		case err != nil:
			t.hand.taken = append(kept, t.hand.taken[i:]...)
			return err
		default:
			kept = append(kept, got)
		}
	}
	t.hand.taken = kept
	return nil
}

// suspend releases a candidate, and keeps all that are like it from claims until there is news of sets
// or templates.
func (t *turn) suspend(from poolindex.Candidate, why noTemplateError) {
	t.planner.stock.queue.Release([]poolindex.Candidate{from})
	t.planner.stock.index.Suspend(from.Pool, from.Revision, why.asOf)
}
