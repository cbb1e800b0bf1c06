// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandboxtemplate stores SandboxTemplates: what may be written when, and
// how they are listed.
package sandboxtemplate

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Strategy is what create and update mean for a SandboxTemplate.
type Strategy struct {
	base.Strategy
	pods PodValidator
}

// PodValidator validates the pods of a template where that takes other objects, or
// a question to the cluster. It returns errors, and warnings of what it cannot find
// out, so that no write depends on what it asks.
type PodValidator interface {
	ValidateTemplate(ctx context.Context, template *v1alpha1.SandboxTemplate) (field.ErrorList, []string)
	// WarnOfSets warns of the sets that cannot follow a change of a template.
	WarnOfSets(ctx context.Context, template *v1alpha1.SandboxTemplate) []string
	// WarnOfDeletion warns of the sets that use templates which are deleted.
	WarnOfDeletion(ctx context.Context, namespace string, templates []string) []string
}

var _ base.MainStrategy = Strategy{}

// NewStrategy returns the strategy of the resource. Without pods, a template is
// validated by itself alone.
func NewStrategy(scheme *runtime.Scheme, pods PodValidator) Strategy {
	return Strategy{Strategy: base.NewStrategy(scheme), pods: pods}
}

// PrepareForCreate starts the count of changes.
func (Strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	template := obj.(*v1alpha1.SandboxTemplate)
	base.ClearResourceVersionOnApply(ctx, &template.ObjectMeta)
	template.Generation = 1
	canonicalize(&template.Spec)
}

// PrepareForUpdate counts changes of the spec.
func (Strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, stored := obj.(*v1alpha1.SandboxTemplate), old.(*v1alpha1.SandboxTemplate)
	canonicalize(&updated.Spec)
	if base.SpecChanged(&updated.Spec, &stored.Spec, canonicalize) {
		updated.Generation = stored.Generation + 1
	}
}

func canonicalize(spec *v1alpha1.SandboxTemplateSpec) {
	base.CanonicalizeTemplate(&spec.EmbeddedSandboxTemplate)
}

// Validate validates a new template.
func (s Strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	template := obj.(*v1alpha1.SandboxTemplate)
	errs := append(base.ForbidResourceVersion(&template.ObjectMeta), validation.ValidateSandboxTemplate(template)...)
	if len(errs) > 0 {
		return errs
	}
	return s.validatePods(ctx, template)
}

// ValidateUpdate validates a change of a template.
func (s Strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	template, stored := obj.(*v1alpha1.SandboxTemplate), old.(*v1alpha1.SandboxTemplate)
	errs := validation.ValidateSandboxTemplateUpdate(template, stored)
	if isOwnedBySet(stored) && base.SpecChanged(&template.Spec, &stored.Spec, canonicalize) {
		return append(errs, field.Forbidden(field.NewPath("spec"), fmt.Sprintf(
			"belongs to SandboxSet %s: change the set or the template that it refers to", metav1.GetControllerOfNoCopy(stored).Name)))
	}
	if len(errs) > 0 || template.DeletionTimestamp != nil || validation.SamePodsOfTemplates(&template.Spec, &stored.Spec) {
		return errs
	}
	return s.validatePods(ctx, template)
}

// isOwnedBySet reports whether a set controls a template, which mostly holds a revision of it then: see
// podtemplate.IsRevision.
func isOwnedBySet(template *v1alpha1.SandboxTemplate) bool { return setOf(template) != nil }

// setOf is the reference to the SandboxSet that controls a template, or nil.
func setOf(template *v1alpha1.SandboxTemplate) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(template)
	if owner == nil || v1alpha1.OwnerKind(owner) != "SandboxSet" {
		return nil
	}
	return owner
}

func (s Strategy) validatePods(ctx context.Context, template *v1alpha1.SandboxTemplate) field.ErrorList {
	if s.pods == nil {
		return nil
	}
	errs, warnings := s.pods.ValidateTemplate(ctx, template)
	base.Warn(ctx, warnings)
	return errs
}

// WarningsOnCreate warns of what a template asks for and does not get. The
// revision of a set is a copy of what was warned of.
func (Strategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	template := obj.(*v1alpha1.SandboxTemplate)
	if isOwnedBySet(template) {
		return nil
	}
	unknown := base.UnknownFieldWarnings(ctx, &template.Spec.EmbeddedSandboxTemplate, &v1alpha1.EmbeddedSandboxTemplate{})
	return append(warnings(&template.Spec), unknown...)
}

func warnings(spec *v1alpha1.SandboxTemplateSpec) []string {
	return slices.Concat(validation.NetworkPolicyWarnings(spec), validation.PersistenceWarnings(spec.PersistentContents),
		validation.UnmountedWarnings(&spec.EmbeddedSandboxTemplate))
}

// WarningsOnUpdate warns as for a create, and of sets that cannot follow the change.
// They continue with what they have.
func (s Strategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	template, stored := obj.(*v1alpha1.SandboxTemplate), old.(*v1alpha1.SandboxTemplate)
	if template.DeletionTimestamp != nil || isOwnedBySet(template) {
		return nil
	}
	told := append(warnings(&template.Spec), validation.NetworkPolicyUpdateWarnings(&template.Spec, &stored.Spec)...)
	told = append(told, base.UnknownFieldWarnings(ctx, &template.Spec.EmbeddedSandboxTemplate, &stored.Spec.EmbeddedSandboxTemplate)...)
	if s.pods == nil || validation.SamePodsOfTemplates(&template.Spec, &stored.Spec) && ptr.Equal(template.Spec.Service, stored.Spec.Service) {
		return told
	}
	return append(told, s.pods.WarnOfSets(ctx, template)...)
}
