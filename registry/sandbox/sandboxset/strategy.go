// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandboxset stores SandboxSets: what may be written when, how they are
// listed, and how they are scaled. Keeping the pools is the controllers' work.
package sandboxset

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Strategy is what create and update mean for a SandboxSet.
type Strategy struct {
	base.Strategy
	pods PodValidator
}

// PodValidator validates the pods of a set where that takes other objects, or a
// question to the cluster. It returns errors, and warnings of what it cannot find
// out, so that no write depends on what it asks.
type PodValidator interface {
	ValidateSet(ctx context.Context, set *v1alpha1.SandboxSet) (field.ErrorList, []string)
}

var (
	_ base.MainStrategy               = Strategy{}
	_ rest.RESTGracefulDeleteStrategy = Strategy{}
)

// NewStrategy returns the strategy of the main resource. Without pods, a set is
// validated by itself alone.
func NewStrategy(scheme *runtime.Scheme, pods PodValidator) Strategy {
	return Strategy{Strategy: base.NewStrategy(scheme), pods: pods}
}

// NewStatusStrategy returns the strategy of the status subresource.
func NewStatusStrategy(s Strategy) base.StatusStrategy[*v1alpha1.SandboxSet] {
	return base.StatusStrategy[*v1alpha1.SandboxSet]{
		MainStrategy: s,
		KeepRest: func(updated, stored *v1alpha1.SandboxSet) {
			updated.Spec = stored.Spec
			base.KeepMetadata(&updated.ObjectMeta, &stored.ObjectMeta)
		},
		Validate: validation.ValidateSandboxSetStatusUpdate,
	}
}

// PrepareForCreate drops the client's status: it counts what the controller
// has seen, and it has seen nothing of this set yet.
func (Strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	set := obj.(*v1alpha1.SandboxSet)
	base.ClearResourceVersionOnApply(ctx, &set.ObjectMeta)
	set.Status = v1alpha1.SandboxSetStatus{}
	set.Generation = 1
	canonicalize(&set.Spec)
}

// PrepareForUpdate keeps the status, and counts changes of the spec.
func (Strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, stored := obj.(*v1alpha1.SandboxSet), old.(*v1alpha1.SandboxSet)
	updated.Status = stored.Status
	canonicalize(&updated.Spec)
	if base.SpecChanged(&updated.Spec, &stored.Spec, canonicalize) {
		updated.Generation = stored.Generation + 1
	}
}

func canonicalize(spec *v1alpha1.SandboxSetSpec) {
	base.CanonicalizeTemplate(&spec.EmbeddedSandboxTemplate)
	spec.Patch = base.CanonicalExtension(spec.Patch)
}

// CheckGracefulDelete gives a set that is deleted in the foreground the finalizer
// that says so, in the same write that makes it terminating. There is no grace.
func (Strategy) CheckGracefulDelete(_ context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	set := obj.(*v1alpha1.SandboxSet)
	policy := options.PropagationPolicy
	if policy != nil && *policy == metav1.DeletePropagationForeground && !slices.Contains(set.Finalizers, v1alpha1.FinalizerPool) {
		set.Finalizers = append(set.Finalizers, v1alpha1.FinalizerPool)
	}
	return false
}

// Validate validates a new set.
func (s Strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	set := obj.(*v1alpha1.SandboxSet)
	errs := append(base.ForbidResourceVersion(&set.ObjectMeta), validation.ValidateSandboxSet(set)...)
	if len(errs) > 0 {
		return errs
	}
	return s.validatePods(ctx, set)
}

// ValidateUpdate validates a change of a set.
func (s Strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	set, stored := obj.(*v1alpha1.SandboxSet), old.(*v1alpha1.SandboxSet)
	errs := validation.ValidateSandboxSetUpdate(set, stored)
	if len(errs) > 0 || set.DeletionTimestamp != nil || validation.SamePodsOfSets(&set.Spec, &stored.Spec) {
		return errs
	}
	return s.validatePods(ctx, set)
}

func (s Strategy) validatePods(ctx context.Context, set *v1alpha1.SandboxSet) field.ErrorList {
	if s.pods == nil {
		return nil
	}
	errs, warnings := s.pods.ValidateSet(ctx, set)
	base.Warn(ctx, warnings)
	return errs
}

// WarningsOnCreate warns of what a pause does not keep, and of fields that are not known.
func (s Strategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	return s.WarningsOnUpdate(ctx, obj, &v1alpha1.SandboxSet{})
}

// WarningsOnUpdate warns as for a create.
func (Strategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	spec, stored := &obj.(*v1alpha1.SandboxSet).Spec, &old.(*v1alpha1.SandboxSet).Spec
	return append(validation.PersistenceWarnings(spec.PersistentContents),
		base.UnknownFieldWarnings(ctx, &spec.EmbeddedSandboxTemplate, &stored.EmbeddedSandboxTemplate)...)
}
