// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Templates finds what sandboxes are made from.
type Templates struct {
	Options

	// cache remembers patched pod templates, sizes what they say of cpu and memory.
	cache *podtemplate.Cache
	sizes *sizes
	// sameButMetadata remembers by pairs of revisions whether they differ in metadata alone.
	sameButMetadata *lru.Cache
	// late finds templates for claims that are served from a pool.
	late podtemplate.Lookup
}

// Options say what holds for all templates.
type Options struct {
	// MaxFresh and MaxFreshBytes bound what is made for one claim: see allocator.Options.
	MaxFresh      int
	MaxFreshBytes int64
	// PodMetadata is what holds where neither set nor template says which metadata of
	// claims reaches pods; nil lets all through.
	PodMetadata *v1alpha1.PodMetadataPolicy
	// LabelDomains are those of the labels that claims of agent-sandbox may put on pods.
	LabelDomains []string
}

// NewTemplates returns Templates. late finds templates for claims that are served from a pool.
func NewTemplates(o Options, late podtemplate.Lookup) *Templates {
	return &Templates{Options: o, cache: podtemplate.NewCache(), sizes: newSizes(), sameButMetadata: lru.New(sizesKept), late: late}
}

// currentRevision returns the template that holds the set's current revision, or
// nil if there is none to make sandboxes from.
func (t *Templates) currentRevision(ctx context.Context, set *v1alpha1.SandboxSet, lookup podtemplate.Lookup) (*v1alpha1.SandboxTemplate, error) {
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

// refusedTemplateError is a template that its set has given up on.
type refusedTemplateError struct{ message string }

// refusedTemplate reports, as an error, that the template that a set refers to can be
// resolved, and was found to be no good.
func refusedTemplate(set *v1alpha1.SandboxSet) error {
	if !hasInvalidTemplate(set) {
		return nil
	}
	return refusedTemplateError{meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionTemplateResolved).Message}
}

// hasInvalidTemplate reports whether the controller has found that the template of the set is
// invalid, for the current generation of the set.
func hasInvalidTemplate(set *v1alpha1.SandboxSet) bool {
	resolution := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.SetConditionTemplateResolved)
	return resolution != nil && resolution.Status == metav1.ConditionFalse && resolution.ObservedGeneration == set.Generation &&
		resolution.Reason == v1alpha1.ReasonInvalidTemplate
}

func (e refusedTemplateError) Error() string { return e.message }

// malformedTemplateError is a template that no sandbox can be made from.
type malformedTemplateError struct{ error }

func (e malformedTemplateError) Unwrap() error { return e.error }

func malformed(err error) error {
	if err == nil {
		return nil
	}
	return malformedTemplateError{err}
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
	var refused refusedTemplateError
	var bad malformedTemplateError
	return errors.As(err, &refused) || errors.As(err, &bad)
}
