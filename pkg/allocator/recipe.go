// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// recipe makes the fresh sandboxes of a claim, or says why it cannot.
type recipe struct {
	model  *v1alpha1.Sandbox
	broken error
	// refused: the template does not take what the claim adds.
	refused *RefusedError
}

// fresh makes a sandbox that is the claim's from birth, and counts when it is
// ready.
func (r *recipe) fresh(b *binding, now time.Time) (*v1alpha1.Sandbox, error) {
	sb := r.model.DeepCopy()
	// What the generic store fills in on create.
	sb.Name = names.SimpleNameGenerator.GenerateName(sb.GenerateName)
	sb.UID = uuid.NewUUID()
	sb.CreationTimestamp = metav1.NewTime(now)
	sb.Generation = 0 // apply counts up
	sb.Status = v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxPending}
	if err := b.apply(sb, starting); err != nil {
		return nil, err
	}
	stamp(sb, now)
	return sb, nil
}

// newRecipe finds the pod template of fresh sandboxes. Errors are those of the
// lookup; what is wrong with the template itself is in the recipe.
func (a *Allocator) newRecipe(
	ctx context.Context, claim *v1alpha1.SandboxClaim, s *supply, lookup podtemplate.Lookup,
) (*recipe, error) {
	var model *v1alpha1.Sandbox
	var refused *RefusedError
	var err error
	if s.set != nil {
		model, err = a.modelOf(ctx, s.set, lookup)
	} else {
		model, err = modelFrom(ctx, claim.Namespace, s.template, lookup)
	}
	if err == nil {
		refused, err = inject(ctx, claim, s, model, lookup)
	}
	if err != nil {
		if unresolved(err) {
			return &recipe{broken: err}, nil
		}
		return nil, err
	}
	if refused != nil {
		return &recipe{broken: refused, refused: refused}, nil //nolint:nilerr // the recipe says so
	}
	return &recipe{model: model}, nil
}

// newRecipeSurely is newRecipe, but before the claim is refused, which is final, sets
// and templates are read as they are now: what lets it in may have been written a moment
// ago. s is changed to the supply that the recipe is of.
func (a *Allocator) newRecipeSurely(ctx context.Context, claim *v1alpha1.SandboxClaim, s *supply) (*recipe, error) {
	r, err := a.newRecipe(ctx, claim, s, a.store)
	if err != nil || r.refused == nil {
		return r, err
	}
	if err := a.refreshSets(ctx, claim.Namespace); err != nil {
		return nil, err
	}
	now, err := a.supply(ctx, claim, false)
	if err != nil || !now.canMake() {
		return r, err // with nothing to make it from there is nothing that lets it in
	}
	*s = now
	return a.newRecipe(ctx, claim, s, a.store.TemplatesNow())
}

// modelFrom is what a sandbox straight from a template looks like.
func modelFrom(ctx context.Context, namespace, name string, lookup podtemplate.Lookup) (*v1alpha1.Sandbox, error) {
	template, err := lookup.SandboxTemplate(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if template == nil {
		return nil, fmt.Errorf("SandboxTemplate %s/%s: %w", namespace, name, podtemplate.ErrTemplateNotFound)
	}
	resolved, err := podtemplate.ResolveTemplate(ctx, template, lookup)
	if err != nil {
		return nil, err
	}
	model, err := podtemplate.NewSandboxFromTemplate(template, resolved)
	return model, malformed(err)
}

// modelOf is what a sandbox of a set looks like. Where the template that the set
// refers to is no good any more, or cannot be had now, the revision that the set's
// pool goes on with is good for claims too.
func (a *Allocator) modelOf(ctx context.Context, set *v1alpha1.SandboxSet, lookup podtemplate.Lookup) (*v1alpha1.Sandbox, error) {
	resolved, err := a.templates.ResolveSet(ctx, set, lookup)
	if err == nil {
		err = refusedTemplate(set)
	}
	if err != nil {
		before, readErr := currentRevision(ctx, set, lookup)
		switch {
		case readErr != nil:
			return nil, readErr
		case before == nil:
			return nil, err
		}
		set, resolved = podtemplate.AtRevision(set, before)
	}
	model, err := podtemplate.NewSandboxForClaim(set, resolved)
	return model, malformed(err)
}

// currentRevision returns the template that holds the set's current revision, or
// nil if there is none to make sandboxes from.
func currentRevision(ctx context.Context, set *v1alpha1.SandboxSet, lookup podtemplate.Lookup) (*v1alpha1.SandboxTemplate, error) {
	name := set.Status.CurrentRevision
	if name == "" || set.Spec.Template != nil {
		return nil, nil
	}
	template, err := lookup.SandboxTemplate(ctx, set.Namespace, name)
	if template == nil || err != nil || template.Spec.Template == nil || !metav1.IsControlledBy(template, set) {
		return nil, err
	}
	return template, nil
}

// errRefused is a template that its set has given up on.
type errRefused struct{ message string }

// refusedTemplate says whether the template that a set refers to can be resolved, and
// was found to be no good.
func refusedTemplate(set *v1alpha1.SandboxSet) error {
	resolution := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionTemplateResolved)
	if resolution == nil || resolution.Status != metav1.ConditionFalse || resolution.ObservedGeneration != set.Generation ||
		resolution.Reason != v1alpha1.ReasonInvalidTemplate {
		return nil
	}
	return errRefused{resolution.Message}
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

// unresolved says whether an error is about templates, and not about reading them.
func unresolved(err error) bool {
	for _, sort := range []error{
		podtemplate.ErrTemplateNotFound, podtemplate.ErrTemplateCycle, podtemplate.ErrTemplateKind, podtemplate.ErrPatch, podtemplate.ErrNoTemplate,
	} {
		if errors.Is(err, sort) {
			return true
		}
	}
	var refused errRefused
	var bad errMalformed
	return errors.As(err, &refused) || errors.As(err, &bad)
}

// inlined is the pod template that a sandbox refers to, nil where it could not be
// found, and as of which news of templates.
type inlined struct {
	template *runtime.RawExtension
	asOf     uint64
}

// inlined looks for the pod template that a sandbox refers to. Sandboxes of one pool
// refer to the same.
func (j *job) inlined(ctx context.Context, sb *v1alpha1.Sandbox) (inlined, error) {
	ref, asOf := *sb.Spec.TemplateRef, j.a.aside.asOf()
	if known, ok := j.resolved[ref]; ok && (known.template != nil || known.asOf == asOf) {
		return known, nil
	}
	found := inlined{asOf: asOf}
	resolved, err := j.a.templates.ResolveSandbox(ctx, sb, j.a.store)
	switch {
	case err == nil:
		found.template = resolved.Template
	case unresolved(err):
		found.template = j.a.rederived(ctx, sb)
	default:
		return found, err
	}
	if err := ctx.Err(); err != nil {
		return found, err // it may be the reason
	}
	if j.resolved == nil {
		j.resolved = map[v1alpha1.SandboxTemplateRef]inlined{}
	}
	j.resolved[ref] = found
	return found, nil
}

// rederived is the pod template of a sandbox whose set's revision nobody holds any
// more, if it is what comes out of the set now; nil otherwise.
func (a *Allocator) rederived(ctx context.Context, sb *v1alpha1.Sandbox) *runtime.RawExtension {
	owner := v1alpha1.PoolOf(sb)
	if owner == nil {
		return nil
	}
	set := a.catalog.set(sb.Namespace, owner.Name)
	if set == nil || set.UID != owner.UID {
		return nil
	}
	resolved, err := a.templates.ResolveSet(ctx, set, a.late)
	if err != nil {
		return nil // also if it cannot be read: the candidate comes back
	}
	if revision, err := podtemplate.SetRevision(set, resolved); err != nil || revision != sb.Labels[v1alpha1.LabelTemplateHash] {
		return nil
	}
	return resolved.Template
}
