// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// templates finds what sandboxes are made from.
type templates struct {
	// cache remembers patched pod templates, sizes what they say of cpu and memory.
	cache *podtemplate.Cache
	sizes *sizes
	// revisions remembers the revisions of sets.
	revisions *setRevisions
	// maxFresh and maxFreshBytes bound what is made for one claim: see Options.
	maxFresh      int
	maxFreshBytes int64
	// late finds templates for claims that are served from a pool.
	late podtemplate.Lookup
	// podMetadata is what holds where neither set nor template says which metadata of
	// claims reaches pods; nil lets all through.
	podMetadata *v1alpha1.PodMetadataPolicy
	// labelDomains are those of the labels that claims of agent-sandbox may put on pods.
	labelDomains []string
}

// podMetadataOf returns which labels and annotations of claims reach the pods of a set:
// what the set says, else what the SandboxTemplate says that it names. Where that is gone
// none do, for it may have held them back.
func (t *templates) podMetadataOf(ctx context.Context, set *v1alpha1.SandboxSet, lookup podtemplate.Lookup) (*v1alpha1.PodMetadataPolicy, error) {
	if set.Spec.PodMetadataPolicy != nil {
		return set.Spec.PodMetadataPolicy, nil
	}
	return t.podMetadataOfTemplate(ctx, set.Namespace, v1alpha1.SandboxTemplateOf(set), lookup)
}

// podMetadataOfTemplate does so for the pods of a SandboxTemplate. No name is none.
func (t *templates) podMetadataOfTemplate(ctx context.Context, namespace, name string, lookup podtemplate.Lookup) (*v1alpha1.PodMetadataPolicy, error) {
	if name == "" {
		return t.podMetadata, nil
	}
	switch template, err := lookup.SandboxTemplate(ctx, namespace, name); {
	case err != nil:
		return nil, err
	case template == nil:
		return &v1alpha1.PodMetadataPolicy{}, nil
	case template.Spec.PodMetadataPolicy != nil:
		return template.Spec.PodMetadataPolicy, nil
	}
	return t.podMetadata, nil
}

// bringsPodMetadata reports whether a claim has anything for the metadata of pods.
func bringsPodMetadata(claim *v1alpha1.SandboxClaim) bool {
	additional := v1alpha1.AdditionalPodMetadataOf(&claim.Spec)
	return len(claim.Spec.Labels)+len(claim.Spec.Annotations)+len(additional.Labels)+len(additional.Annotations) > 0
}

// freshModel is what the sandboxes made for a claim look like, or why there can be
// none.
type freshModel struct {
	sandbox *v1alpha1.Sandbox
	// limit is how many of them the claim may hold.
	limit claims.FreshLimit
	// podMetadata says which of the claim's labels and annotations its pod has.
	podMetadata *v1alpha1.PodMetadataPolicy
	broken      error
	// refused: the template does not take what the claim adds, or a new claim can only
	// have fresh sandboxes and wants more than are made for one.
	refused *RefusedError
}

// freshModel finds the pod template of sandboxes made for a claim. Errors are those
// of the lookup; what is wrong with the template itself is in the model.
func (t *templates) freshModel(
	ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, lookup podtemplate.Lookup,
) (*freshModel, error) {
	model, most, err := t.plainModel(ctx, claim, e, lookup)
	var refused *RefusedError
	if err == nil {
		refused, err = t.complete(ctx, claim, e, model, most, lookup)
	}
	switch {
	case isAboutTemplates(err):
		return &freshModel{broken: err}, nil
	case err != nil:
		return nil, err
	case refused != nil:
		return &freshModel{broken: refused, refused: refused}, nil //nolint:nilerr // the model says so
	}
	return model, nil
}

// plainModel finds what sandboxes made for a claim look like but for what the claim adds,
// and what set and template say of their number.
func (t *templates) plainModel(
	ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, lookup podtemplate.Lookup,
) (model *freshModel, most []*int32, err error) {
	model = &freshModel{}
	if e.MakeFrom != nil {
		model.sandbox, most, err = t.modelOf(ctx, e.MakeFrom, lookup)
	} else {
		model.sandbox, most, err = modelFrom(ctx, claim.Namespace, e.MakeFromTemplate, lookup)
	}
	if err != nil || !bringsPodMetadata(claim) {
		return model, most, err
	}
	if e.MakeFrom != nil {
		model.podMetadata, err = t.podMetadataOf(ctx, e.MakeFrom, lookup)
	} else {
		model.podMetadata, err = t.podMetadataOfTemplate(ctx, claim.Namespace, e.MakeFromTemplate, lookup)
	}
	return model, most, err
}

// complete puts into a model what the claim adds, or returns why it cannot have that.
func (t *templates) complete(
	ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, model *freshModel, most []*int32, lookup podtemplate.Lookup,
) (*RefusedError, error) {
	if refused, err := checkService(claim, e, model.sandbox); refused != nil || err != nil {
		return refused, err
	}
	if refused, err := changeModel(claim, model.sandbox); refused != nil || err != nil {
		return refused, err
	}
	if refused, err := inject(ctx, claim, e, model.sandbox, lookup); refused != nil || err != nil {
		return refused, err
	}
	var err error
	if model.limit, err = t.freshLimit(claim, model.sandbox, most); err != nil {
		return nil, err
	}
	if refused := metadataRefusal(claim, model.sandbox.Spec.Template); refused != nil {
		return refused, nil
	}
	return tooMany(claim, e, model.limit), nil
}

// checkService checks that the sandboxes made for a claim can have a Service if their template
// asks for one. The sandbox of a claim of agent-sandbox has the name of the claim, and others have
// the name of their set or template with a suffix. A new claim that no pool can serve is refused.
func checkService(claim *v1alpha1.SandboxClaim, e *claims.Eligible, model *v1alpha1.Sandbox) (*RefusedError, error) {
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
	return &RefusedError{Message: err.Error(), Errors: field.ErrorList{field.Invalid(at, bad, err.Error())}}, nil
}

// freshLimit is how many sandboxes like the model a claim may hold. said is what set and
// template say of their number.
func (t *templates) freshLimit(claim *v1alpha1.SandboxClaim, model *v1alpha1.Sandbox, said []*int32) (claims.FreshLimit, error) {
	each := int64(0)
	// The claim's metadata is on the sandbox, and on its pod template.
	additional := v1alpha1.AdditionalPodMetadataOf(&claim.Spec)
	parts := []any{model, claim.Spec.Labels, claim.Spec.Labels, claim.Spec.Annotations, claim.Spec.Annotations}
	if bringsAdditional(claim) {
		parts = append(parts, additional)
	}
	for _, part := range parts {
		raw, err := json.Marshal(part)
		if err != nil {
			return claims.FreshLimit{}, malformed(err)
		}
		each += int64(len(raw))
	}
	return claims.NewFreshLimit(t.maxFresh, t.maxFreshBytes, each, said...), nil
}

// tooMany is why a new claim can never have what it asks for: no pool serves it, and as
// many are not made for one. A claim that is stored waits: the limit may be raised.
func tooMany(claim *v1alpha1.SandboxClaim, e *claims.Eligible, limit claims.FreshLimit) *RefusedError {
	wanted := claims.Replicas(claim)
	if len(e.Pools) > 0 || claim.ResourceVersion != "" || wanted <= limit.Most {
		return nil
	}
	message := fmt.Sprintf("no pool serves the claim, and of the sandboxes that are made for it one claim may hold %d at a time (%s)",
		limit.Most, limit.Rule)
	return &RefusedError{Message: message, Errors: field.ErrorList{field.Invalid(replicasPath, wanted, message)}}
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

// modelOf is what a sandbox of a set looks like, and what the set and its template say of
// the number of those that are made for one claim. Where the template that the set
// refers to is no good any more, or cannot be had now, the revision that the set's
// pool goes on with is good for claims too.
func (t *templates) modelOf(ctx context.Context, set *v1alpha1.SandboxSet, lookup podtemplate.Lookup) (*v1alpha1.Sandbox, []*int32, error) {
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

// currentRevision returns the template that holds the set's current revision, or
// nil if there is none to make sandboxes from.
func (t *templates) currentRevision(ctx context.Context, set *v1alpha1.SandboxSet, lookup podtemplate.Lookup) (*v1alpha1.SandboxTemplate, error) {
	name := podtemplate.HolderOf(&set.Status)
	if name == "" || set.Spec.Template != nil {
		return nil, nil
	}
	template, err := lookup.SandboxTemplate(ctx, set.Namespace, name)
	if template == nil || err != nil || !metav1.IsControlledBy(template, set) || !t.cache.HoldsRevision(template, set.Status.UpdateRevision) {
		return nil, err
	}
	return template, nil
}

// errRefused is a template that its set has given up on.
type errRefused struct{ message string }

// refusedTemplate reports, as an error, that the template that a set refers to can be
// resolved, and was found to be no good.
func refusedTemplate(set *v1alpha1.SandboxSet) error {
	if !hasInvalidTemplate(set) {
		return nil
	}
	return errRefused{meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionTemplateResolved).Message}
}

// hasInvalidTemplate reports whether the controller has found that the template of the set is
// invalid, for the current generation of the set.
func hasInvalidTemplate(set *v1alpha1.SandboxSet) bool {
	resolution := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionTemplateResolved)
	return resolution != nil && resolution.Status == metav1.ConditionFalse && resolution.ObservedGeneration == set.Generation &&
		resolution.Reason == v1alpha1.ReasonInvalidTemplate
}

func (e errRefused) Error() string { return e.message }

// errMalformed is a template that no sandbox can be made from.
type errMalformed struct{ error }

func (e errMalformed) Unwrap() error { return e.error }

func malformed(err error) error {
	if err == nil {
		return nil
	}
	return errMalformed{err}
}

// isAboutTemplates reports whether an error is about templates, and not about reading them.
func isAboutTemplates(err error) bool {
	for _, known := range []error{
		podtemplate.ErrTemplateNotFound, podtemplate.ErrTemplateCycle, podtemplate.ErrTemplateKind, podtemplate.ErrPatch, podtemplate.ErrNoTemplate,
		podtemplate.ErrVolumes, podtemplate.ErrRevision,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	var refused errRefused
	var bad errMalformed
	return errors.As(err, &refused) || errors.As(err, &bad)
}

var (
	replicasPath = field.NewPath("spec", "replicas")
	envPath      = field.NewPath("spec", "env")
	volumesPath  = field.NewPath("spec", "volumeClaimTemplates")
)

// inject puts what a claim adds into the model of its fresh sandboxes, as far as the
// template lets it: the SandboxTemplate that the claim, or the set that makes them,
// names first. A set with a pod template of its own names none, and lets nothing in.
// The model is changed.
func inject(
	ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, model *v1alpha1.Sandbox, lookup podtemplate.Lookup,
) (*RefusedError, error) {
	if !v1alpha1.NeedsFresh(&claim.Spec) {
		return nil, nil
	}
	policies, err := policiesFor(ctx, claim, e, lookup)
	if err != nil {
		return nil, err
	}
	if policies == nil {
		return withoutPolicy(claim, e), nil
	}
	template, refused, err := podtemplate.InjectEnv(model.Spec.Template, claim.Spec.Env, policies, envPath)
	if err != nil {
		return nil, malformed(err)
	}
	if len(refused) > 0 {
		why := refusal(v1alpha1.ReasonEnvVarsInjectionRejected, refused)
		// The template may come to have the containers: clients of agent-sandbox wait for that.
		why.Conflict = !slices.ContainsFunc(refused, func(e *field.Error) bool { return e.Type != field.ErrorTypeNotFound })
		return why, nil
	}
	volumes, refused, err := injectVolumes(claim, template, model.Spec.VolumeClaimTemplates, policies)
	if err != nil {
		return nil, malformed(err)
	}
	if len(refused) > 0 {
		return refusal(v1alpha1.ReasonVolumeClaimTemplatesRejected, refused), nil
	}
	model.Spec.Template, model.Spec.VolumeClaimTemplates = template, volumes
	return nil, nil
}

// injectVolumes returns the volume claim templates in have, which are those of the template,
// with those of a claim. A claim of agent-sandbox is stored before its volumes are validated, so
// they are validated here, and it may bring volumes that no container mounts.
func injectVolumes(
	claim *v1alpha1.SandboxClaim, template *runtime.RawExtension, have []runtime.RawExtension, policies *v1alpha1.SandboxTemplateSpec,
) ([]runtime.RawExtension, field.ErrorList, error) {
	add := claim.Spec.VolumeClaimTemplates
	volumes, refused, err := podtemplate.InjectVolumes(template, have, add, policies, volumesPath)
	switch most := validation.MaxVolumeClaimTemplates; {
	case err != nil || len(refused) > 0:
		return nil, refused, err
	case len(volumes) > most:
		return nil, field.ErrorList{field.TooMany(volumesPath, len(volumes), most)}, nil
	case v1alpha1.OfAgentSandbox(claim):
		return volumes, validation.ValidateVolumeClaimTemplates(add, volumesPath), nil
	}
	return volumes, validation.ValidateMounted(template, add, volumesPath), nil
}

// policiesFor returns the spec of the template whose policies hold for what is made of
// this; nil where there is none. They are those of the template that a
// claim asks for also where a set with a pod template of its own counts as that.
func policiesFor(
	ctx context.Context, claim *v1alpha1.SandboxClaim, e *claims.Eligible, lookup podtemplate.Lookup,
) (*v1alpha1.SandboxTemplateSpec, error) {
	name, inline := e.MakeFromTemplate, false
	if e.MakeFrom != nil {
		name, inline = v1alpha1.SandboxTemplateOf(e.MakeFrom), e.MakeFrom.Spec.Template != nil
	}
	if asked, byRef := v1alpha1.AskedOf(claim); byRef {
		name = asked
	}
	if name == "" {
		return nil, nil
	}
	template, err := lookup.SandboxTemplate(ctx, claim.Namespace, name)
	switch {
	case err != nil:
		return nil, err
	case template == nil && inline:
		return nil, nil
	case template == nil:
		return nil, fmt.Errorf("SandboxTemplate %s/%s: %w", claim.Namespace, name, podtemplate.ErrTemplateNotFound)
	}
	return &template.Spec, nil
}

// toldRefusals is how many of the reasons for a refusal the status of a claim has.
const toldRefusals = 3

// refusal tells, in the words of a claim's status, that the template does not take
// what the claim adds.
func refusal(reason string, errs field.ErrorList) *RefusedError {
	told := make([]string, 0, toldRefusals)
	for _, err := range errs[:min(len(errs), toldRefusals)] {
		told = append(told, err.Error())
	}
	why := strings.Join(told, "; ")
	if more := len(errs) - len(told); more > 0 {
		why += fmt.Sprintf("; and %d more", more)
	}
	message := v1alpha1.EnvVarsInjectionRejectedMessage(why)
	switch reason {
	case v1alpha1.ReasonInvalidMetadata:
		message = v1alpha1.InvalidMetadataMessage(why)
	case v1alpha1.ReasonVolumeClaimTemplatesRejected:
		message = v1alpha1.VolumeClaimTemplatesRejectedMessage(why)
	case v1alpha1.ReasonInplaceUpdateRejected:
		message = v1alpha1.InplaceUpdateRejectedMessage(why)
	}
	return &RefusedError{Reason: reason, Message: message, Errors: errs}
}
