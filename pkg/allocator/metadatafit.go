// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// bringsAdditional reports whether a claim has metadata that is for its pods alone, which
// no pod template may set to other values.
func bringsAdditional(claim *v1alpha1.SandboxClaim) bool {
	additional := v1alpha1.AdditionalPodMetadataOf(&claim.Spec)
	return len(additional.Labels)+len(additional.Annotations) > 0
}

// metadataRefusal is why a pod template does not take the additionalPodMetadata of a claim;
// nil if it does.
func metadataRefusal(claim *v1alpha1.SandboxClaim, template *runtime.RawExtension) *RefusedError {
	if !bringsAdditional(claim) {
		return nil
	}
	marks, err := plan.NewMarks(claim)
	if err != nil {
		return nil //nolint:nilerr // making sandboxes meets it as well
	}
	return marks.Refuses(template)
}

// checkMetadata refuses a claim that is about to be created, and whose additionalPodMetadata
// no pod template takes of the sets that may serve it, and says so of one that is stored and
// tells what is wrong with it. It takes nothing. Where it has to be sure, sets and templates
// are read as they are now before the claim is refused. What cannot be read is met again.
func (p *planner) checkMetadata(ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, sure bool) error {
	if refused := p.templates.agentMetadata(claim); refused != nil {
		return refused
	}
	if !bringsAdditional(claim) {
		return nil
	}
	switch refused := p.fitsNone(ctx, claim, e, p.stock.store); {
	case refused == nil:
		return nil
	case !sure:
		return refused
	}
	if err := p.stock.readSets(ctx, claim.Namespace); err != nil {
		return nil //nolint:nilerr // it is not known whether they take it
	}
	now, err := p.stock.eligible(ctx, claim, false)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	if refused := p.fitsNone(ctx, claim, &now, p.stock.store.TemplatesNow()); refused != nil {
		return refused
	}
	return nil
}

// agentMetadata is why the additionalPodMetadata of a claim of agent-sandbox is none that
// it may have, whatever its template says; nil if it may.
func (t *templates) agentMetadata(claim *v1alpha1.SandboxClaim) *RefusedError {
	if !v1alpha1.OfAgentSandbox(claim) || !bringsAdditional(claim) {
		return nil
	}
	errs := validation.ValidateAgentPodMetadata(&claim.Spec, t.labelDomains)
	if len(errs) == 0 {
		return nil
	}
	return refusal(v1alpha1.ReasonInvalidMetadata, errs)
}

// fitsNone is why additionalPodMetadata goes with none of the pod templates of the sets that
// may serve a claim; nil if it goes with one, there is none, or that is not known.
func (p *planner) fitsNone(ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, lookup podtemplate.Lookup) *RefusedError {
	var first *RefusedError
	for _, set := range e.Pools {
		resolved, err := p.templates.cache.ResolveSet(ctx, set, lookup)
		if err != nil {
			return nil //nolint:nilerr // it is not known whether they take it
		}
		refused := metadataRefusal(claim, resolved.Template)
		if refused == nil {
			return nil
		}
		if first == nil {
			first = refused
		}
	}
	return first
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
	t.letGo() // others can do with what does not fit this claim
	t.hand.made = nil
	t.state.Refused = refused
	if refused.Reason == v1alpha1.ReasonMountFailed { // which no edit of the claim mends
		t.hand.refused = refused
	}
	return t.draft(ctx)
}
