// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
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

// turn is one step of a claim: it finds what the claim needs and plans what to write.
type turn struct {
	planner *planner
	hand    *hand
	state   plan.State
	// waiter is the claim's place in the queue; nil for a claim that is not stored yet.
	waiter *queue.Waiter
	// dry: the turn takes nothing and makes nothing.
	dry bool
	// throttled is for how long the turn takes nothing and makes nothing, because the write
	// limits would reject that.
	throttled time.Duration

	marks      *plan.Marks
	candidates *candidates
	model      *freshModel
	// wouldMake is how many sandboxes a dry turn would make.
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

// preparedFor gives back what is in the hand if the claim was edited since that was
// prepared: it has the labels, metadata, image and times of before.
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

// checkRefused finds out whether the template takes what the claim adds to its
// sandboxes, if more of them have to be made. A claim that is stored meets an error
// again where a sandbox is to be made.
func (t *turn) checkRefused(ctx context.Context) error {
	if !plan.NeedsModel(&t.state) {
		return nil
	}
	model, err := t.modelOfClaim(ctx, &t.state.Eligible)
	if err != nil {
		if ctx.Err() != nil || t.state.New {
			return err
		}
		return nil
	}
	t.model = model
	if model.refused == nil {
		return nil
	}
	if !t.state.New {
		t.state.Refused = model.refused
		return nil
	}
	return t.refuse(model.refused)
}

// refuse returns an error of a claim that is about to be created. One that is stored all
// the same, and tells what is wrong with it, only gets nothing for as long as that is so.
func (t *turn) refuse(err error) error {
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || claims.EndsRefused(t.state.Claim) {
		return err
	}
	t.state.Refused = refused
	return nil
}

// judgedLater reports whether the claim is stored and is refused nothing for good: what the
// caches say is enough then, for their news begin its next turn. So edits of templates cost
// no reads for each claim that is refused.
func (t *turn) judgedLater() bool { return !t.state.New && !claims.EndsRefused(t.state.Claim) }

// modelOfClaim returns the model of the claim's fresh sandboxes. e is changed to what it is of.
func (t *turn) modelOfClaim(ctx context.Context, e *claims.Eligible) (*freshModel, error) {
	if t.judgedLater() {
		return t.planner.templates.freshModel(ctx, t.state.Claim, e, t.planner.stock.store)
	}
	return t.planner.surelyRefused(ctx, t.state.Claim, e)
}

// surelyRefused returns the model of a claim's fresh sandboxes. Before the claim is
// refused, which is final, sets and templates are read as they are now: what lets it in
// may have been written a moment ago. e is changed to what the model is of.
func (p *planner) surelyRefused(ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible) (*freshModel, error) {
	model, err := p.templates.freshModel(ctx, claim, e, p.stock.store)
	if err != nil || model.refused == nil {
		return model, err
	}
	if err := p.stock.readSets(ctx, claim.Namespace); err != nil {
		return nil, err
	}
	now, err := p.stock.eligible(ctx, claim, false)
	if err != nil || !now.CanMake() {
		return model, err // with nothing to make it from there is nothing that lets it in
	}
	*e = now
	return p.templates.freshModel(ctx, claim, e, p.stock.store.TemplatesNow())
}

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
		t.letGo() // others can do with them
	}
	return t.offer(broken), nil
}

// whyBroken is why no sandboxes can be made for a claim whose time is up.
func (t *turn) whyBroken(ctx context.Context, a *plan.Assessment) (broken, err error) {
	if t.hand.unknown != nil {
		return t.hand.unknown, nil
	}
	model, err := t.planner.templates.freshModel(ctx, a.State.Claim, &a.State.Eligible, t.planner.stock.store)
	switch {
	case err == nil && model.broken == nil && model.limit.Left(a.State.Held) < a.Missing():
		return model.limit, nil
	case err == nil:
		return model.broken, nil
	case ctx.Err() != nil:
		return nil, err
	}
	return unread(ctx, a.State.Claim, err), nil // its time is up all the same
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

// offer is what the hand has.
func (t *turn) offer(broken error) plan.Offer {
	o := plan.Offer{Made: t.hand.made, WouldMake: t.wouldMake, Broken: broken, Candidates: make([]plan.Candidate, 0, len(t.hand.taken))}
	for _, c := range t.hand.taken {
		o.Candidates = append(o.Candidates, *c.as)
	}
	return o
}

// fillUp takes what there is in the pools, and makes sandboxes for the rest. done is
// false if not all can be made now, because of what broken says or because there is
// nothing to make them from any more.
func (t *turn) fillUp(ctx context.Context, a *plan.Assessment, n int) (done bool, broken, err error) {
	if err := t.takeSurely(ctx, a, n, true); err != nil {
		return false, nil, err
	}
	lacks := n - len(t.hand.taken)
	if lacks <= 0 {
		return true, nil, nil
	}
	if !a.State.Eligible.CanMake() {
		return false, nil, nil
	}
	if t.hand.unknown != nil {
		return false, t.hand.unknown, nil
	}
	if broken, err = t.needModel(ctx, a); broken != nil || err != nil {
		return false, broken, err
	}
	if lacks, broken = t.mayMake(a, lacks); broken != nil && lacks == 0 {
		return false, broken, nil
	}
	if t.dry {
		t.wouldMake = lacks
		return broken == nil, broken, nil
	}
	if err := t.makeFresh(ctx, a, lacks); err != nil {
		return false, nil, err
	}
	if t.hand.unknown != nil {
		return false, t.hand.unknown, nil
	}
	if claims.AllOrNothing(a.State.Claim) && len(t.hand.taken)+len(t.hand.made) < n {
		t.letGo() // others can do with them until some can be made
	}
	return broken == nil, broken, nil
}

// needModel finds what sandboxes for the claim look like, or what is broken so that none
// can be made now.
func (t *turn) needModel(ctx context.Context, a *plan.Assessment) (broken, err error) {
	if t.model == nil {
		model, err := t.modelOfClaim(ctx, &a.State.Eligible)
		switch {
		case err == nil:
			t.model = model
		case ctx.Err() != nil || a.FailsOnShortage():
			return nil, err
		default: // the claim goes on with what there is, and looks again
			return unread(ctx, a.State.Claim, err), nil
		}
	}
	if t.model.refused != nil && (a.State.New || t.model.refused.Reason == v1alpha1.ReasonInvalidMetadata) {
		return nil, t.model.refused
	}
	return t.model.broken, nil
}

// mayMake is how many sandboxes may be made for a claim that lacks some, in this turn,
// and why not all of them. Where a part of them would be made for nothing, there are
// none.
func (t *turn) mayMake(a *plan.Assessment, lacks int) (int, error) {
	left, wants := t.model.limit.Left(a.State.Held), lacks
	if a.FailsOnShortage() { // which has to be known before the first transaction
		wants = a.Missing() - len(t.hand.taken)
	}
	switch {
	case wants <= left:
		return lacks, nil
	case claims.AllOrNothing(a.State.Claim) || a.FailsOnShortage():
		return 0, t.model.limit
	}
	return left, t.model.limit
}

// unreadError is something that could not be read. Its text is for the status of a
// claim, whose user can do nothing about what is wrong with the store or the cluster.
type unreadError struct{ error }

func (unreadError) Error() string { return "what they are made from cannot be read now" }

func (e unreadError) Unwrap() error { return e.error }

// unread logs why something could not be read, and returns what a claim's status says.
func unread(ctx context.Context, claim *v1alpha1.SandboxClaim, err error) error {
	klog.FromContext(ctx).Error(err, "Failed to read the template of sandboxes for a claim", "claim", klog.KObj(claim))
	return unreadError{err}
}

// makeFresh makes sandboxes until there are n. If they must not be made, a new claim
// fails; one that goes on does so without them, and tries again later.
func (t *turn) makeFresh(ctx context.Context, a *plan.Assessment, n int) error {
	admitted := len(t.hand.made)
	if claims.SandboxName(a.State.Claim) != "" && admitted == 0 {
		var err error
		if a.State.Name, err = t.nameState(ctx, a.State.Claim); err != nil || a.State.Name != plan.NameFree {
			return err
		}
	}
	made := slices.Clone(t.hand.made)
	for len(made) < n {
		name := cmp.Or(claims.SandboxName(a.State.Claim), podtemplate.NewName(t.model.sandbox.GenerateName))
		sb, err := t.marks.NewSandbox(t.model.sandbox, t.model.podMetadata, name, uuid.NewUUID(), string(uuid.NewUUID()), a.State.Now)
		if err != nil {
			return err
		}
		made = append(made, sb)
	}
	if t.planner.admit != nil && len(made) > admitted {
		if err := t.planner.admit(ctx, a.State.Claim, made[admitted:], max(0, len(made)-t.hand.charged)); err != nil {
			if a.State.New {
				return err
			}
			if errors.Is(err, ErrIdentityUnknown) {
				t.hand.unknown = ErrIdentityUnknown
				return nil
			}
			klog.FromContext(ctx).Error(err, "Failed to create sandboxes for a claim, retrying later", "claim", klog.KObj(a.State.Claim))
			t.hand.making.begin(a.State.Now)
			t.hand.denied = denial(err)
			a.State.Denied = t.hand.denied
			return nil
		}
	}
	t.hand.denied, a.State.Denied = nil, nil
	t.hand.made, t.hand.charged = made, max(t.hand.charged, len(made))
	return nil
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

// take takes sandboxes of the pools until the hand has n or there are no more. A claim
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

// prepare puts candidates into the hand. After an error it returns those that it has
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

// returnBeyond returns all but the first n taken sandboxes. There can be more than n after a
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

// letGo gives back what was taken and not bound. A dry turn has taken nothing: what it
// has looked at is others' to take.
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

// shortage is what a claim is told that would rather fail than wait and finds too few
// sandboxes. broken is why none can be made for it although it would take these.
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
