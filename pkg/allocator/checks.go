// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// Check refuses, as Create would, a claim that would rather fail than wait and finds
// too few sandboxes, or would wait where too many do, or one that takes fresh sandboxes
// only and asks for too many, or adds what its template does not take, or names a pool of
// another template than it does (a *MismatchError). It takes nothing,
// so Create can find less. It is for what should not be done for nothing before that,
// such as charging a quota, which is not given back.
func (a *Allocator) Check(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	fails := claim.Spec.OnShortage == v1alpha1.ShortageFail ||
		!a.stock.Queue.HasRoom(claim.Namespace, claim.Annotations[v1alpha1.AnnotationClaimedBy], a.options.MaxWaiting)
	isPlain := claims.TakesWarm(claim) && !candidates.BringsAdditional(claim) && !namesBoth(claim)
	if isPlain && !fails || plan.IsExpired(claim, a.options.Clock.Now()) {
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
		return a.supplier.refusal(ctx, claim, err)
	}
	if err := a.supplier.checkMetadata(ctx, claim, &e, true); err != nil {
		return a.supplier.refusal(ctx, claim, err)
	}
	if !claims.TakesWarm(claim) {
		if !e.CanMake() {
			return nil
		}
		if model, err := a.supplier.confirmedModel(ctx, claim, &e); err == nil && model.Refused != nil {
			return a.supplier.refusal(ctx, claim, model.Refused)
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
	switch enough, broken := a.supplier.wouldMake(ctx, claim, &e, wanted-available); {
	case enough:
		return nil
	case claim.Spec.OnShortage != v1alpha1.ShortageFail:
		return a.supplier.refusal(ctx, claim, &TooManyWaitingError{Namespace: claim.Namespace, Most: a.options.MaxWaiting, RetryAfter: retryAfter})
	default:
		return a.supplier.refusal(ctx, claim, shortage(claim, &e, wanted, available, broken))
	}
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

// check finds out whether the claim can have what it adds to its sandboxes. A new claim is refused
// otherwise.
func (a *attempt) check(ctx context.Context) error {
	if err := a.checkModel(ctx); err != nil {
		return err
	}
	s := &a.state
	if !s.New && claims.EndsRefused(s.Claim) {
		return nil
	}
	return a.refuse(a.finder.supplier.checkMetadata(ctx, s.Claim, &s.Eligible, !isCacheEnough(s)))
}

// checkModel finds out whether the template takes what the claim adds to its
// sandboxes, if more of them have to be made. A claim that is stored meets an error
// again where a sandbox is to be made.
func (a *attempt) checkModel(ctx context.Context) error {
	if !plan.NeedsModel(&a.state) {
		return nil
	}
	model, err := a.finder.supplier.findModel(ctx, &a.state)
	if err != nil {
		if ctx.Err() != nil || a.state.New {
			return err
		}
		return nil
	}
	a.finder.model = model
	if model.Refused == nil {
		return nil
	}
	if !a.state.New {
		a.state.Refused = model.Refused
		return nil
	}
	return a.refuse(model.Refused)
}

// refuse returns an error of a claim that is about to be created. One that is stored all
// the same, and reports what is wrong with it, only gets nothing for as long as that is so.
func (a *attempt) refuse(err error) error {
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || claims.EndsRefused(a.state.Claim) {
		return err
	}
	a.state.Refused = refused
	return nil
}

// isCacheEnough reports whether a claim is stored and is refused nothing for good: what the
// caches say is enough then, because their events make the claim due. So edits of templates cost
// no reads for each claim that is refused.
func isCacheEnough(s *plan.State) bool {
	return !s.New && !claims.EndsRefused(s.Claim)
}

// findModel returns the model of the fresh sandboxes of a claim. The pools of the state are changed to
// what it is of.
func (p *supplier) findModel(ctx context.Context, s *plan.State) (*candidates.Model, error) {
	if isCacheEnough(s) {
		return p.templates.Model(ctx, s.Claim, &s.Eligible, p.store)
	}
	return p.confirmedModel(ctx, s.Claim, &s.Eligible)
}

// confirmedModel returns the model of a claim's fresh sandboxes. Before the claim is
// refused, which is final, sets and templates are read as they are now: what lets it in
// may have been written a moment ago. e is changed to what the model is of.
func (p *supplier) confirmedModel(ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible) (*candidates.Model, error) {
	model, err := p.templates.Model(ctx, claim, e, p.store)
	if err != nil || model.Refused == nil {
		return model, err
	}
	if err := p.stock.ReadSets(ctx, claim.Namespace); err != nil {
		return nil, err
	}
	now, err := p.stock.Eligible(ctx, claim, false)
	if err != nil || !now.CanMake() {
		return model, err // with nothing to make it from there is nothing that lets it in
	}
	*e = now
	return p.templates.Model(ctx, claim, e, p.store.TemplatesNow())
}

// wouldMake reports whether n sandboxes can be made for a claim that is not stored, as far
// as can be seen, and what is in the way of that.
func (p *supplier) wouldMake(ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, n int) (enough bool, broken error) {
	if !claims.CreatesOnNoStock(claim) || !e.CanMake() {
		return false, nil
	}
	model, err := p.confirmedModel(ctx, claim, e)
	if err == nil && model.Broken != nil {
		return false, model.Broken
	}
	if err == nil && model.Limit.Left(nil) < n {
		return false, model.Limit
	}
	return true, nil
}

// refusal is the error for the client whose claim could not be created. If the claim's name is taken, it
// is ErrClaimExists instead of a refusal: a client that tries again, because the first answer was lost,
// must not read that nothing was bound.
func (p *supplier) refusal(ctx context.Context, claim *v1alpha1.SandboxClaim, err error) error {
	if errors.Is(err, etcdtxn.ErrTooLarge) && !errors.Is(err, ErrTooLarge) {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if !isRefusal(err) {
		return err
	}
	stored, readErr := p.store.Claim(ctx, claim.Namespace, claim.Name)
	switch {
	case readErr != nil:
		return readErr
	case stored != nil:
		return ErrClaimExists
	}
	return err
}

// checkMetadata refuses a claim that is about to be created, and whose additionalPodMetadata
// no pod template takes of the sets that may serve it, and says so of one that is stored and
// reports what is wrong with it. It takes nothing. Where it has to be sure, sets and templates
// are read as they are now before the claim is refused. What cannot be read is met again.
func (p *supplier) checkMetadata(ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, sure bool) error {
	if refused := p.templates.AgentMetadataRefusal(claim); refused != nil {
		return refused
	}
	if !candidates.BringsAdditional(claim) {
		return nil
	}
	switch refused := p.templates.MetadataRefusal(ctx, claim, e, p.store); {
	case refused == nil:
		return nil
	case !sure:
		return refused
	}
	if err := p.stock.ReadSets(ctx, claim.Namespace); err != nil {
		return nil //nolint:nilerr // it is not known whether they take it
	}
	now, err := p.stock.Eligible(ctx, claim, false)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	if refused := p.templates.MetadataRefusal(ctx, claim, &now, p.store.TemplatesNow()); refused != nil {
		return refused
	}
	return nil
}

var mountsPath = field.NewPath("spec", "dynamicVolumesMount")

// checkMounts is why a claim gets no more: it has volumes mounted into its sandboxes, which
// an agent-runtime does, and what is offered has none.
func checkMounts(s *plan.State, o *plan.Offer) *RefusedError {
	if !claims.Mounts(s.Claim) {
		return nil
	}
	pool := plan.WithoutRuntime(o)
	if pool == "" && s.New && len(o.Candidates)+len(o.Made) == 0 {
		pool = runtimelessSet(&s.Eligible)
	}
	if pool == "" {
		return nil
	}
	message := pool + " has no agent-runtime, which would mount the volumes"
	return &RefusedError{
		Reason: v1alpha1.ReasonMountFailed, Message: message, Errors: field.ErrorList{field.Forbidden(mountsPath, message)},
	}
}

// runtimelessSet names a set of those that may serve a claim, if all of them say themselves
// what their sandboxes are, and none of these has an agent-runtime; "" otherwise.
func runtimelessSet(e *claims.Eligible) string {
	sets := e.Pools
	if e.MakeFrom != nil {
		sets = append(slices.Clip(sets), e.MakeFrom)
	}
	if len(sets) == 0 || e.MakeFromTemplate != "" {
		return ""
	}
	for _, set := range sets {
		if set.Spec.Template == nil || podtemplate.NamesAgentRuntime(set.Spec.Runtimes) || podtemplate.BringsAgentRuntime(set.Spec.Template) {
			return ""
		}
	}
	return "SandboxSet " + sets[0].Name
}

// checkMismatch fails with a *MismatchError for a claim that names both, where they do not
// belong together. The status of the claim reports what does not exist.
func checkMismatch(claim *v1alpha1.SandboxClaim, e *claims.Eligible) error {
	if !namesBoth(claim) || e.Problem == nil || e.Problem.Reason != v1alpha1.ReasonWarmPoolMismatch {
		return nil
	}
	return &MismatchError{Pool: claim.Spec.WarmPoolRef.Name, Template: claim.Spec.SandboxTemplateRef.Name}
}

// namesBoth reports whether a claim of agent-sandbox names its pool and its template.
func namesBoth(claim *v1alpha1.SandboxClaim) bool {
	return v1alpha1.OfAgentSandbox(claim) && claim.Spec.WarmPoolRef != nil && claim.Spec.SandboxTemplateRef != nil
}
