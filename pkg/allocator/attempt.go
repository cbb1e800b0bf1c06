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
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// planner finds what a claim needs and makes its plans of it.
type planner struct {
	templates *templates
	stock     *stock
	clock     clock.PassiveClock
	// admit judges the sandboxes that are about to be made for a claim, and may change
	// them; nil lets all pass. charge is how many of them a quota is charged for.
	admit func(ctx context.Context, claim *v1alpha1.SandboxClaim, made []*v1alpha1.Sandbox, charge int) error
	// seal is Seal of plan.Marks.
	seal func(*v1alpha1.SandboxClaim) (request, keyVersion string, err error)
}

// turn is one try to bring a claim forward: it finds what the claim needs, takes or makes it, and plans
// the transaction that comes next. The caller commits that plan.
type turn struct {
	planner *planner
	hand    *hand
	state   plan.State
	// waiter is the claim's place in the queue; nil for a claim that is not stored yet.
	waiter *queue.Waiter
	// dry is set if the attempt takes nothing and makes nothing, as in a preview.
	dry bool
	// throttled is for how long the attempt takes nothing and makes nothing, because the write
	// limits would reject that.
	throttled time.Duration

	marks      *plan.Marks
	candidates *candidates
	model      *freshModel
	// wouldMake is how many sandboxes a dry attempt would make.
	wouldMake int
}

// plan makes the next plan. The claim of the state, what it holds, and whether it is
// new, are set; the rest is found. Errors of a new claim are those of Create.
func (t *turn) plan(ctx context.Context) (*plan.Plan, error) {
	ctx, span := tracing.Start(ctx, "Find sandboxes")
	defer span.End(slow)
	s := &t.state
	s.Now = t.planner.clock.Now()
	t.preparedFor(s.Claim.Generation)
	s.Room, s.Refused, s.MayMake, s.Broken, s.Name = t.hand.room, t.hand.refused, t.hand.making.over(s.Now), nil, plan.NameFree
	s.Denied = t.hand.denied
	t.model, t.candidates = nil, &candidates{templates: t.planner.templates, stock: t.planner.stock, claim: s.Claim, now: s.Now}
	var err error
	marked := s.Claim
	if t.dry { // what it adds to thousands of sandboxes is not shown
		without := *s.Claim
		without.Spec.Labels, without.Spec.Annotations = nil, nil
		marked = &without
	}
	if t.marks, err = plan.NewMarks(marked); err != nil {
		return nil, err
	}
	t.marks.Seal, s.Setups.LeftOut = t.planner.seal, t.dry
	if s.Eligible, err = t.planner.stock.eligible(ctx, s.Claim, s.New); err != nil {
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
	t.lookAgain()
	if err := t.dropStale(ctx); err != nil {
		return nil, err
	}
	if err := t.checkRefused(ctx); err != nil {
		return nil, err
	}
	if s.New || !claims.EndsRefused(s.Claim) {
		if err := t.refuse(t.planner.checkMetadata(ctx, s.Claim, &s.Eligible, !t.judgedLater())); err != nil {
			return nil, err
		}
	}
	a, p, err := t.draftOrEnd(ctx)
	if err != nil {
		return nil, err
	}
	t.state.Eligible, t.state.Name = a.State.Eligible, a.State.Name
	t.hand.charged = len(t.hand.made) // the quota controller may have released charges without a sandbox by now
	t.hand.heldBack.Insert(t.marks.HeldBack()...)
	t.hand.withoutRuntime.Insert(t.marks.WithoutRuntime()...)
	t.planLook(p)
	span.AddEvent("Found", attribute.Int("from pool", len(p.Bound)), attribute.Int("made", len(p.Made)), attribute.Int("missing", p.Wants.Need))
	return p, nil
}

// preparedFor releases what is reserved if the claim was edited since that was prepared, because it
// has the labels, metadata, image and times of before.
func (t *turn) preparedFor(generation int64) {
	if t.hand.generation != generation {
		t.letGo()
		t.hand.made = nil
		if t.hand.generation != 0 && !claims.EndsRefused(t.state.Claim) {
			t.hand.refused = nil
		}
		t.hand.making.reset() // what was in the way may be in the way no more
		t.hand.denied = nil
		t.hand.looking.reset()
	}
	t.hand.generation = generation
}

// lookAgain lets sandboxes be taken again, when it is time, whose template could not be
// found.
func (t *turn) lookAgain() {
	if t.waiter != nil && !t.hand.looking.until.IsZero() && t.hand.looking.over(t.state.Now) {
		sources := sourcesOf(&t.state.Eligible)
		t.planner.stock.resume(t.state.Claim.Namespace, func(p poolindex.Pool) bool { return isSource(sources, p) })
	}
}

// planLook says when to look again at what is in the way after a plan, if anything is.
func (t *turn) planLook(p *plan.Plan) {
	if p.Wants.Need == 0 || p.Broken == nil && !t.planner.stock.suspended(sourcesOf(&t.state.Eligible)) {
		t.hand.looking.reset()
	} else if t.hand.looking.over(t.state.Now) {
		t.hand.looking.begin(t.state.Now)
	}
}

// draft makes a plan of what is found now.
func (t *turn) draft(ctx context.Context) (*plan.Assessment, *plan.Plan, error) {
	a := plan.Assess(t.state)
	offer, err := t.find(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	if refused := t.cannotMount(a, &offer); refused != nil {
		return nil, nil, refused
	}
	p, err := a.Next(offer, t.marks)
	return a, p, err
}

// draftOrEnd makes a plan. A claim that is stored, and whose additionalPodMetadata or
// volumes do not go with what would serve it, gets no more and ends; one that is new is
// refused.
func (t *turn) draftOrEnd(ctx context.Context) (*plan.Assessment, *plan.Plan, error) {
	a, p, err := t.draft(ctx)
	refused, ok := errors.AsType[*RefusedError](err)
	switch {
	case !ok:
		return a, p, err
	case t.refuse(refused) != nil && t.state.New:
		return nil, nil, refused
	}
	t.letGo() // others can use what does not fit this claim
	t.hand.made = nil
	t.state.Refused = refused
	if refused.Reason == v1alpha1.ReasonMountFailed { // which no edit of the claim mends
		t.hand.refused = refused
	}
	return t.draft(ctx)
}
