// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var sandboxPhases = []v1alpha1.SandboxPhase{
	v1alpha1.SandboxPending, v1alpha1.SandboxRunning, v1alpha1.SandboxPaused,
	v1alpha1.SandboxResuming, v1alpha1.SandboxUpgrading, v1alpha1.SandboxSucceeded,
	v1alpha1.SandboxFailed, v1alpha1.SandboxRecycling, v1alpha1.SandboxTerminating,
}

// ValidateSandbox checks a new sandbox. OpenKruise Agents takes one without a
// template and then ignores it; it could never start, so here it is refused.
func ValidateSandbox(sandbox *v1alpha1.Sandbox) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&sandbox.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, metadataPath)
	return append(errs, validateSandboxSpec(&sandbox.Spec, specPath)...)
}

// ValidateSandboxUpdate checks a changed sandbox.
func ValidateSandboxUpdate(sandbox, old *v1alpha1.Sandbox) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&sandbox.ObjectMeta, &old.ObjectMeta, metadataPath)
	return append(errs, validateSandboxSpec(&sandbox.Spec, specPath)...)
}

// ValidateSandboxStatusUpdate checks a changed status.
func ValidateSandboxStatusUpdate(sandbox, old *v1alpha1.Sandbox) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&sandbox.ObjectMeta, &old.ObjectMeta, metadataPath)
	status := &sandbox.Status
	if status.Phase != "" {
		errs = append(errs, validateEnum(status.Phase, sandboxPhases, statusPath.Child("phase"))...)
	}
	errs = append(errs, validateCount(status.ObservedGeneration, statusPath.Child("observedGeneration"))...)
	errs = append(errs, validateCount(int64(status.RecycledCount), statusPath.Child("recycledCount"))...)
	return append(errs, metav1validation.ValidateConditions(status.Conditions, statusPath.Child("conditions"))...)
}

func validateSandboxSpec(spec *v1alpha1.SandboxSpec, path *field.Path) field.ErrorList {
	errs := validateEmbeddedTemplate(&spec.EmbeddedSandboxTemplate, path)
	return append(errs, refuseUnserved(unservedInSandbox(spec), path)...)
}
