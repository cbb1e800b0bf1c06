// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Model is what the sandboxes made for a claim look like, or why there can be
// none.
type Model struct {
	// Sandbox is what they look like.
	Sandbox *v1alpha1.Sandbox
	// Limit is how many of them the claim may hold.
	Limit claims.FreshLimit
	// PodMetadata says which of the claim's labels and annotations its pod has.
	PodMetadata *v1alpha1.PodMetadataPolicy
	// Broken is why none can be made; nil otherwise.
	Broken error
	// Refused is set if the template does not take what the claim adds, or if a new claim can
	// only have fresh sandboxes and wants more than are made for one.
	Refused *plan.RefusedError
}

// Model finds the pod template of sandboxes made for a claim. Errors are those
// of the lookup; what is wrong with the template itself is in the model.
func (t *Templates) Model(
	ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, lookup podtemplate.Lookup,
) (*Model, error) {
	model, most, err := t.plainModel(ctx, claim, e, lookup)
	var refused *plan.RefusedError
	if err == nil {
		refused, err = t.complete(ctx, claim, e, model, most, lookup)
	}
	switch {
	case isAboutTemplates(err):
		return &Model{Broken: err}, nil
	case err != nil:
		return nil, err
	case refused != nil:
		return &Model{Broken: refused, Refused: refused}, nil //nolint:nilerr // the model says so
	}
	return model, nil
}

// plainModel finds what sandboxes made for a claim look like without what the claim adds,
// and what set and template say of their number.
func (t *Templates) plainModel(
	ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, lookup podtemplate.Lookup,
) (model *Model, most []*int32, err error) {
	model = &Model{}
	if e.MakeFrom != nil {
		model.Sandbox, most, err = t.modelOf(ctx, e.MakeFrom, lookup)
	} else {
		model.Sandbox, most, err = modelFrom(ctx, claim.Namespace, e.MakeFromTemplate, lookup)
	}
	if err != nil || !BringsPodMetadata(claim) {
		return model, most, err
	}
	if e.MakeFrom != nil {
		model.PodMetadata, err = t.PodMetadataOf(ctx, e.MakeFrom, lookup)
	} else {
		model.PodMetadata, err = t.PodMetadataOfTemplate(ctx, claim.Namespace, e.MakeFromTemplate, lookup)
	}
	return model, most, err
}

// complete puts into a model what the claim adds, or returns why it cannot have that.
func (t *Templates) complete(
	ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, model *Model, most []*int32, lookup podtemplate.Lookup,
) (*plan.RefusedError, error) {
	if refused, err := checkService(claim, e, model.Sandbox); refused != nil || err != nil {
		return refused, err
	}
	if refused, err := changeModel(claim, model.Sandbox); refused != nil || err != nil {
		return refused, err
	}
	if refused, err := inject(ctx, claim, e, model.Sandbox, lookup); refused != nil || err != nil {
		return refused, err
	}
	var err error
	if model.Limit, err = t.freshLimit(claim, model.Sandbox, most); err != nil {
		return nil, err
	}
	if refused := metadataRefusal(claim, model.Sandbox.Spec.Template); refused != nil {
		return refused, nil
	}
	return tooMany(claim, e, model.Limit), nil
}

// checkService checks that the sandboxes made for a claim can have a Service if their template
// asks for one. The sandbox of a claim of agent-sandbox has the name of the claim, and others have
// the name of their set or template with a suffix. A new claim that no pool can serve is refused.
func checkService(claim *v1alpha1.SandboxClaim, e *claims.Eligible, model *v1alpha1.Sandbox) (*plan.RefusedError, error) {
	bad, _ := v1alpha1.AskedOf(claim)
	name, at := model.GenerateName+"x", field.NewPath("spec", strings.Split(claims.AskedField(claim), ".")...)
	if v1alpha1.OfAgentSandbox(claim) {
		name, at, bad = claim.Name, field.NewPath("metadata", "name"), claim.Name
	}
	err := v1alpha1.CheckServiceName(model.Spec.Service, name)
	if err == nil {
		return nil, nil
	}
	err = fmt.Errorf("the template has service: true, but %w", err)
	if len(e.Pools) > 0 || claim.ResourceVersion != "" {
		return nil, malformed(err)
	}
	return &plan.RefusedError{Message: err.Error(), Errors: field.ErrorList{field.Invalid(at, bad, err.Error())}}, nil
}

// freshLimit is how many sandboxes like the model a claim may hold. said is what set and
// template say of their number.
func (t *Templates) freshLimit(claim *v1alpha1.SandboxClaim, model *v1alpha1.Sandbox, said []*int32) (claims.FreshLimit, error) {
	each := int64(0)
	// The claim's metadata is on the sandbox, and on its pod template.
	additional := v1alpha1.AdditionalPodMetadataOf(&claim.Spec)
	parts := []any{model, claim.Spec.Labels, claim.Spec.Labels, claim.Spec.Annotations, claim.Spec.Annotations}
	if BringsAdditional(claim) {
		parts = append(parts, additional)
	}
	for _, part := range parts {
		raw, err := json.Marshal(part)
		if err != nil {
			return claims.FreshLimit{}, malformed(err)
		}
		each += int64(len(raw))
	}
	return claims.NewFreshLimit(t.MaxFresh, t.MaxFreshBytes, each, said...), nil
}

// tooMany is why a new claim can never have what it asks for: no pool serves it, and as
// many are not made for one. A claim that is stored waits: the limit may be raised.
func tooMany(claim *v1alpha1.SandboxClaim, e *claims.Eligible, limit claims.FreshLimit) *plan.RefusedError {
	wanted := claims.Replicas(claim)
	if len(e.Pools) > 0 || claim.ResourceVersion != "" || wanted <= limit.Most {
		return nil
	}
	message := fmt.Sprintf("no pool serves the claim, and of the sandboxes that are made for it one claim may hold %d at a time (%s)",
		limit.Most, limit.Rule)
	return &plan.RefusedError{Message: message, Errors: field.ErrorList{field.Invalid(replicasPath, wanted, message)}}
}

// modelFrom is what a sandbox straight from a template looks like, and what that says
// of their number.
func modelFrom(ctx context.Context, namespace, name string, lookup podtemplate.Lookup) (*v1alpha1.Sandbox, []*int32, error) {
	template, err := lookup.SandboxTemplate(ctx, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	if template == nil {
		return nil, nil, fmt.Errorf("SandboxTemplate %s/%s: %w", namespace, name, podtemplate.ErrTemplateNotFound)
	}
	resolved, err := podtemplate.ResolveTemplate(ctx, template, lookup)
	if err != nil {
		return nil, nil, err
	}
	model, err := podtemplate.NewSandboxFromTemplate(template, resolved)
	return model, []*int32{template.Spec.MaxFreshSandboxes}, malformed(err)
}

// modelOf returns what a sandbox of a set looks like, and what the set and its template say of
// the number of those that are made for one claim. If the template that the set refers to is
// invalid or cannot be read now, it uses the revision that the set's pool keeps.
func (t *Templates) modelOf(ctx context.Context, set *v1alpha1.SandboxSet, lookup podtemplate.Lookup) (*v1alpha1.Sandbox, []*int32, error) {
	resolved, err := t.cache.ResolveSet(ctx, set, lookup)
	if err == nil {
		err = refusedTemplate(set)
	}
	if err != nil {
		before, readErr := t.currentRevision(ctx, set, lookup)
		switch {
		case readErr != nil:
			return nil, nil, readErr
		case before == nil:
			return nil, nil, err
		}
		set, resolved = podtemplate.AtRevision(set, before)
	}
	model, err := podtemplate.NewSandboxForClaim(set, resolved)
	return model, []*int32{set.Spec.MaxFreshSandboxes, resolved.MaxFreshSandboxes}, malformed(err)
}

var inplaceUpdatePath = field.NewPath("spec", "inplaceUpdate")

// inPlace returns the pod template of a claim's sandbox with the claim's inplaceUpdate in
// it. A new claim is refused where the template does not take all of it, with a
// *RefusedError. One that is stored gets the rest; where the template cannot be read, that
// is the template as it is.
func inPlace(template *runtime.RawExtension, claim *v1alpha1.SandboxClaim) (inplace.Applied, error) {
	as, err := inplace.Apply(template, claim.Spec.InplaceUpdate, inplaceUpdatePath)
	if err != nil {
		as.Rejected = field.ErrorList{field.Invalid(inplaceUpdatePath, "", err.Error())}
	}
	if len(as.Rejected) > 0 && claim.ResourceVersion == "" {
		return as, refusal(v1alpha1.ReasonInplaceUpdateRejected, as.Rejected)
	}
	return as, nil
}

// changeModel puts a claim's inplaceUpdate into the model of its fresh sandboxes: they are
// made with it. The cluster would take no pod of a template that does not take it, so none
// are made then. The model is changed.
func changeModel(claim *v1alpha1.SandboxClaim, model *v1alpha1.Sandbox) (*plan.RefusedError, error) {
	as, err := inplace.Apply(model.Spec.Template, claim.Spec.InplaceUpdate, inplaceUpdatePath)
	if err != nil {
		return nil, malformed(err)
	}
	if len(as.Rejected) > 0 {
		return refusal(v1alpha1.ReasonInplaceUpdateRejected, as.Rejected), nil
	}
	model.Spec.Template = as.Template
	return nil, nil
}
