// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// supplier finds where the sandboxes of claims come from. It has what the attempts of all claims share.
type supplier struct {
	store     Store
	templates *candidates.Templates
	stock     *candidates.Stock
	clock     clock.PassiveClock
	// admit runs admission for the sandboxes that are about to be made for a claim, which may
	// change them; nil lets all pass. charge is how many of them a quota is charged for.
	admit func(ctx context.Context, claim *v1alpha1.SandboxClaim, made []*v1alpha1.Sandbox, charge int) error
	// seal is Seal of plan.Marks.
	seal func(*v1alpha1.SandboxClaim) (request, keyVersion string, err error)
}

// attempt is one try to bring a claim forward: it finds what the claim needs, takes or makes it, and plans
// the next transaction. The caller commits that plan.
type attempt struct {
	finder finder
	state  plan.State
}

// plan makes the next plan. The caller has set the claim of the state, what it holds, and New;
// the rest is found. Errors of a new claim are those of Create.
func (a *attempt) plan(ctx context.Context) (*plan.Plan, error) {
	ctx, span := tracing.Start(ctx, "Find sandboxes")
	defer span.End(storage.Slow)
	if err := a.prepare(); err != nil {
		return nil, err
	}
	if err := a.findPools(ctx); err != nil {
		return nil, err
	}
	if err := a.check(ctx); err != nil {
		return nil, err
	}
	p, err := a.draftOrEnd(ctx)
	if err != nil {
		return nil, err
	}
	a.state.Eligible, a.state.Making = a.finder.assessment.State.Eligible, a.finder.assessment.State.Making
	a.finder.reservation.noteMarks(a.finder.marks)
	a.scheduleLook(p)
	span.AddEvent("Found", attribute.Int("from pool", len(p.Bound)), attribute.Int("made", len(p.Made)), attribute.Int("missing", p.Wants.Need))
	return p, nil
}

// prepare sets what the state of the claim is apart from its pools, and what is to be written on its
// sandboxes. What was found out by earlier attempts is in the reservation.
func (a *attempt) prepare() error {
	s, r := &a.state, a.finder.reservation
	s.Now = a.finder.supplier.clock.Now()
	a.releaseIfEdited(s.Claim.Generation)
	s.Room, s.Refused, s.Broken, s.Setups.LeftOut = r.room, r.refused, nil, a.finder.dry
	s.Making = plan.Making{Allowed: r.makeBackoff.IsOver(s.Now), Denied: r.denied, Name: plan.NameFree}
	a.finder.model, a.finder.preparer = nil, &candidates.Preparer{Templates: a.finder.supplier.templates, Stock: a.finder.supplier.stock, Claim: s.Claim, Now: s.Now}
	marked := s.Claim
	if a.finder.dry { // what it adds to thousands of sandboxes is not shown
		without := *s.Claim
		without.Spec.Labels, without.Spec.Annotations = nil, nil
		marked = &without
	}
	var err error
	if a.finder.marks, err = plan.NewMarks(marked); err != nil {
		return err
	}
	a.finder.marks.Seal = a.finder.supplier.seal
	return nil
}

// findPools finds the pools that may serve the claim, and releases what was taken from them earlier and is
// stale by now.
func (a *attempt) findPools(ctx context.Context) (err error) {
	s := &a.state
	if s.Eligible, err = a.finder.supplier.stock.Eligible(ctx, s.Claim, s.New); err != nil {
		if s.New || s.Now.Before(plan.Deadline(s.Claim, s.Start)) || ctx.Err() != nil {
			return err
		}
		s.Broken = unread(ctx, s.Claim, err) // its time is up all the same
	}
	if s.New {
		if err := checkMismatch(s.Claim, &s.Eligible); err != nil {
			return err
		}
	}
	a.resumeSuspended()
	return a.finder.releaseStale(ctx)
}

// releaseIfEdited releases what is reserved if the claim was edited since that was prepared, because it
// has the labels, metadata, image and times of before.
func (a *attempt) releaseIfEdited(generation int64) {
	if a.finder.reservation.generation != generation {
		a.finder.release()
		a.finder.reservation.made = nil
		if a.finder.reservation.generation != 0 && !claims.EndsRefused(a.state.Claim) {
			a.finder.reservation.refused = nil
		}
		a.finder.reservation.makeBackoff.Reset() // what was in the way may be in the way no more
		a.finder.reservation.denied = nil
		a.finder.reservation.lookBackoff.Reset()
	}
	a.finder.reservation.generation = generation
}

// resumeSuspended lets sandboxes be taken again, when it is time, whose template could not be
// found.
func (a *attempt) resumeSuspended() {
	if a.finder.waiter != nil && !a.finder.reservation.lookBackoff.Until.IsZero() && a.finder.reservation.lookBackoff.IsOver(a.state.Now) {
		sources := candidates.SourcesOf(&a.state.Eligible)
		a.finder.supplier.stock.Resume(a.state.Claim.Namespace, func(p poolindex.Pool) bool { return candidates.IsSource(sources, p) })
	}
}

// scheduleLook sets when to look again at what is in the way of the claim after a plan, if anything is.
func (a *attempt) scheduleLook(p *plan.Plan) {
	if p.Wants.Need == 0 || p.Broken == nil && !a.finder.supplier.stock.HasSuspended(candidates.SourcesOf(&a.state.Eligible)) {
		a.finder.reservation.lookBackoff.Reset()
	} else if a.finder.reservation.lookBackoff.IsOver(a.state.Now) {
		a.finder.reservation.lookBackoff.Start(a.state.Now)
	}
}

// draft makes a plan of what is found now.
func (a *attempt) draft(ctx context.Context) (*plan.Plan, error) {
	a.finder.assessment = plan.Assess(a.state)
	offer, err := a.finder.find(ctx)
	if err != nil {
		return nil, err
	}
	if refused := checkMounts(&a.finder.assessment.State, &offer); refused != nil {
		return nil, refused
	}
	return a.finder.assessment.Next(offer, a.finder.marks)
}

// draftOrEnd makes a plan. A claim that is stored, and whose additionalPodMetadata or
// volumes do not go with what would serve it, gets no more and ends; one that is new is
// refused.
func (a *attempt) draftOrEnd(ctx context.Context) (*plan.Plan, error) {
	p, err := a.draft(ctx)
	refused, ok := errors.AsType[*RefusedError](err)
	switch {
	case !ok:
		return p, err
	case a.refuse(refused) != nil && a.state.New:
		return nil, refused
	}
	a.finder.release() // others can use what does not fit this claim
	a.finder.reservation.made = nil
	a.state.Refused = refused
	if refused.Reason == v1alpha1.ReasonMountFailed { // which no edit of the claim mends
		a.finder.reservation.refused = refused
	}
	return a.draft(ctx)
}
