// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// planner finds what a claim needs and makes its plans of it.
type planner struct {
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
// the transaction that comes next. The caller commits that plan.
type attempt struct {
	planner     *planner
	reservation *reservation
	state       plan.State
	// waiter is the claim's place in the queue; nil for a claim that is not stored yet.
	waiter *queue.Waiter
	// dry is set if the attempt takes nothing and makes nothing, as in a preview.
	dry bool
	// throttled is for how long the attempt takes nothing and makes nothing, because the write
	// limits would reject that.
	throttled time.Duration

	marks    *plan.Marks
	preparer *candidates.Preparer
	model    *candidates.Model
	// wouldMake is how many sandboxes a dry attempt would make.
	wouldMake int
}

// plan makes the next plan. The caller has set the claim of the state, what it holds, and New;
// the rest is found. Errors of a new claim are those of Create.
func (a *attempt) plan(ctx context.Context) (*plan.Plan, error) {
	ctx, span := tracing.Start(ctx, "Find sandboxes")
	defer span.End(slow)
	s := &a.state
	s.Now = a.planner.clock.Now()
	a.releaseIfEdited(s.Claim.Generation)
	s.Room, s.Refused, s.MayMake, s.Broken, s.Name = a.reservation.room, a.reservation.refused, a.reservation.makeBackoff.isOver(s.Now), nil, plan.NameFree
	s.Denied = a.reservation.denied
	a.model, a.preparer = nil, &candidates.Preparer{Templates: a.planner.templates, Stock: a.planner.stock, Claim: s.Claim, Now: s.Now}
	var err error
	marked := s.Claim
	if a.dry { // what it adds to thousands of sandboxes is not shown
		without := *s.Claim
		without.Spec.Labels, without.Spec.Annotations = nil, nil
		marked = &without
	}
	if a.marks, err = plan.NewMarks(marked); err != nil {
		return nil, err
	}
	a.marks.Seal, s.Setups.LeftOut = a.planner.seal, a.dry
	if s.Eligible, err = a.planner.stock.Eligible(ctx, s.Claim, s.New); err != nil {
		if s.New || s.Now.Before(plan.Deadline(s.Claim, s.Start)) || ctx.Err() != nil {
			return nil, err
		}
		s.Broken = unread(ctx, s.Claim, err) // its time is up all the same
	}
	if s.New {
		if err := ofOneTemplate(s.Claim, &s.Eligible); err != nil {
			return nil, err
		}
	}
	a.resumeSuspended()
	if err := a.releaseStale(ctx); err != nil {
		return nil, err
	}
	if err := a.checkRefused(ctx); err != nil {
		return nil, err
	}
	if s.New || !claims.EndsRefused(s.Claim) {
		if err := a.refuse(a.planner.checkMetadata(ctx, s.Claim, &s.Eligible, !a.isCacheEnough())); err != nil {
			return nil, err
		}
	}
	assessment, p, err := a.draftOrEnd(ctx)
	if err != nil {
		return nil, err
	}
	a.state.Eligible, a.state.Name = assessment.State.Eligible, assessment.State.Name
	a.reservation.charged = len(a.reservation.made) // the quota controller may have released charges without a sandbox by now
	a.reservation.heldBack.Insert(a.marks.HeldBack()...)
	a.reservation.withoutRuntime.Insert(a.marks.WithoutRuntime()...)
	a.scheduleLook(p)
	span.AddEvent("Found", attribute.Int("from pool", len(p.Bound)), attribute.Int("made", len(p.Made)), attribute.Int("missing", p.Wants.Need))
	return p, nil
}

// releaseIfEdited releases what is reserved if the claim was edited since that was prepared, because it
// has the labels, metadata, image and times of before.
func (a *attempt) releaseIfEdited(generation int64) {
	if a.reservation.generation != generation {
		a.release()
		a.reservation.made = nil
		if a.reservation.generation != 0 && !claims.EndsRefused(a.state.Claim) {
			a.reservation.refused = nil
		}
		a.reservation.makeBackoff.reset() // what was in the way may be in the way no more
		a.reservation.denied = nil
		a.reservation.lookBackoff.reset()
	}
	a.reservation.generation = generation
}

// resumeSuspended lets sandboxes be taken again, when it is time, whose template could not be
// found.
func (a *attempt) resumeSuspended() {
	if a.waiter != nil && !a.reservation.lookBackoff.until.IsZero() && a.reservation.lookBackoff.isOver(a.state.Now) {
		sources := candidates.SourcesOf(&a.state.Eligible)
		a.planner.stock.Resume(a.state.Claim.Namespace, func(p poolindex.Pool) bool { return candidates.IsSource(sources, p) })
	}
}

// scheduleLook says when to look again at what is in the way after a plan, if anything is.
func (a *attempt) scheduleLook(p *plan.Plan) {
	if p.Wants.Need == 0 || p.Broken == nil && !a.planner.stock.HasSuspended(candidates.SourcesOf(&a.state.Eligible)) {
		a.reservation.lookBackoff.reset()
	} else if a.reservation.lookBackoff.isOver(a.state.Now) {
		a.reservation.lookBackoff.start(a.state.Now)
	}
}

// draft makes a plan of what is found now.
func (a *attempt) draft(ctx context.Context) (*plan.Assessment, *plan.Plan, error) {
	assessment := plan.Assess(a.state)
	offer, err := a.find(ctx, assessment)
	if err != nil {
		return nil, nil, err
	}
	if refused := a.checkMounts(assessment, &offer); refused != nil {
		return nil, nil, refused
	}
	p, err := assessment.Next(offer, a.marks)
	return assessment, p, err
}

// draftOrEnd makes a plan. A claim that is stored, and whose additionalPodMetadata or
// volumes do not go with what would serve it, gets no more and ends; one that is new is
// refused.
func (a *attempt) draftOrEnd(ctx context.Context) (*plan.Assessment, *plan.Plan, error) {
	assessment, p, err := a.draft(ctx)
	refused, ok := errors.AsType[*RefusedError](err)
	switch {
	case !ok:
		return assessment, p, err
	case a.refuse(refused) != nil && a.state.New:
		return nil, nil, refused
	}
	a.release() // others can use what does not fit this claim
	a.reservation.made = nil
	a.state.Refused = refused
	if refused.Reason == v1alpha1.ReasonMountFailed { // which no edit of the claim mends
		a.reservation.refused = refused
	}
	return a.draft(ctx)
}
