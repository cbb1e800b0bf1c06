// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandboxtemplate stores SandboxTemplates: what may be written when, and
// how they are listed. It does not look for the sets that refer to one.
package sandboxtemplate

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/registry/sandbox/rawjson"
	"github.com/sandlot-io/sandlot/registry/sandbox/strategy"
)

// Strategy is what create and update mean for a SandboxTemplate.
type Strategy struct {
	strategy.Base
}

var _ rest.RESTCreateUpdateStrategy = Strategy{}

// NewStrategy returns the strategy of the resource.
func NewStrategy(typer runtime.ObjectTyper) Strategy {
	return Strategy{Base: strategy.NewBase(typer)}
}

// PrepareForCreate starts the count of changes.
func (Strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	template := obj.(*v1alpha1.SandboxTemplate)
	template.Generation = 1
	canonicalize(&template.Spec)
}

// PrepareForUpdate counts changes of the spec.
func (Strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, stored := obj.(*v1alpha1.SandboxTemplate), old.(*v1alpha1.SandboxTemplate)
	canonicalize(&updated.Spec)
	if strategy.SpecChanged(&updated.Spec, &stored.Spec, canonicalize) {
		updated.Generation = stored.Generation + 1
	}
}

func canonicalize(spec *v1alpha1.SandboxTemplateSpec) {
	rawjson.CanonicalizeTemplate(&spec.EmbeddedSandboxTemplate)
}

// Validate judges a new template.
func (Strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	template := obj.(*v1alpha1.SandboxTemplate)
	return append(strategy.ForbidVersion(&template.ObjectMeta), validation.ValidateSandboxTemplate(template)...)
}

// ValidateUpdate judges a change of a template.
func (Strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateSandboxTemplateUpdate(obj.(*v1alpha1.SandboxTemplate), old.(*v1alpha1.SandboxTemplate))
}
