// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var sandboxPhases = []v1alpha1.SandboxPhase{
	v1alpha1.SandboxPending, v1alpha1.SandboxRunning, v1alpha1.SandboxPaused,
	v1alpha1.SandboxResuming, v1alpha1.SandboxUpgrading, v1alpha1.SandboxSucceeded,
	v1alpha1.SandboxFailed, v1alpha1.SandboxRecycling, v1alpha1.SandboxTerminating,
}

var sandboxShutdownPolicies = []v1alpha1.ShutdownPolicy{v1alpha1.ShutdownDelete, v1alpha1.ShutdownRetain}

// ValidateSandbox checks a new sandbox. OpenKruise Agents takes one without a
// template and then ignores it; it could never start, so here it is refused.
func ValidateSandbox(sandbox *v1alpha1.Sandbox) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&sandbox.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, metadataPath)
	errs = append(errs, validateRetention(sandbox.Annotations, metadataPath.Child("annotations"))...)
	errs = append(errs, validateEmbeddedTemplate(&sandbox.Spec.EmbeddedSandboxTemplate, specPath)...)
	errs = append(errs, validateSandboxSpec(&sandbox.Spec, &v1alpha1.SandboxSpec{}, specPath)...)
	return append(errs, validateService(sandbox)...)
}

// validateService refuses service: true if the name of the sandbox is not valid for a Service.
func validateService(sandbox *v1alpha1.Sandbox) field.ErrorList {
	if err := v1alpha1.CheckServiceName(sandbox.Spec.Service, sandbox.Name); err != nil {
		return field.ErrorList{field.Invalid(specPath.Child("service"), true, err.Error())}
	}
	return nil
}

// ValidateSandboxUpdate checks a changed sandbox: what differs from before, so that
// one which was stored under other rules, or whose template a claim has made too
// large, can still be paused, shut down and deleted.
func ValidateSandboxUpdate(sandbox, old *v1alpha1.Sandbox) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&sandbox.ObjectMeta, &old.ObjectMeta, metadataPath)
	const retention = v1alpha1.AnnotationReservePausedSandboxDuration
	if sandbox.Annotations[retention] != old.Annotations[retention] {
		errs = append(errs, validateRetention(sandbox.Annotations, metadataPath.Child("annotations"))...)
	}
	returns := ReturnsToPool(sandbox, old)
	// The pod has it from birth, and what selects pods by it is to be relied on.
	if !returns && sandbox.Labels[v1alpha1.LabelSandboxTemplate] != old.Labels[v1alpha1.LabelSandboxTemplate] {
		errs = append(errs, field.Forbidden(metadataPath.Child("labels").Key(v1alpha1.LabelSandboxTemplate), "is immutable"))
	}
	if !returns {
		errs = append(errs, validateBindingUnchanged(&sandbox.ObjectMeta, &old.ObjectMeta)...)
	}
	if sandbox.DeletionTimestamp == nil {
		errs = append(errs, validateChangedTemplate(&sandbox.Spec.EmbeddedSandboxTemplate, &old.Spec.EmbeddedSandboxTemplate, specPath)...)
		errs = append(errs, validateSandboxSpec(&sandbox.Spec, &old.Spec, specPath)...)
		if !ptr.Equal(sandbox.Spec.Service, old.Spec.Service) {
			errs = append(errs, validateService(sandbox)...)
		}
	}
	if len(errs) > 0 || returns {
		return errs // the comparison is of things that decode
	}
	errs = validateUnchanged(&sandbox.Spec.EmbeddedSandboxTemplate, &old.Spec.EmbeddedSandboxTemplate, specPath, templateMayChange(old))
	if !slices.Equal(sandbox.Spec.Runtimes, old.Spec.Runtimes) {
		errs = append(errs, field.Forbidden(specPath.Child("runtimes"), "is immutable"))
	}
	return errs
}

// validateBindingUnchanged refuses updates that would take a bound sandbox from its
// claim, or hand it to another, or give it another pool to go back to. The allocator
// writes these keys in transactions, which do not pass validation.
func validateBindingUnchanged(meta, old *metav1.ObjectMeta) field.ErrorList {
	if owner := old.Annotations[v1alpha1.AnnotationOwner]; owner == "" || owner == v1alpha1.OwnerScaleDown {
		return nil
	}
	const detail = "is immutable while the sandbox is bound to a claim"
	var errs field.ErrorList
	for _, key := range []string{v1alpha1.AnnotationLock, v1alpha1.AnnotationOwner} {
		if meta.Annotations[key] != old.Annotations[key] {
			errs = append(errs, field.Forbidden(metadataPath.Child("annotations").Key(key), detail))
		}
	}
	for _, key := range []string{
		v1alpha1.LabelClaimName, v1alpha1.LabelSandboxClaimed, v1alpha1.LabelSandboxPool, v1alpha1.LabelTemplateHash,
		v1alpha1.LabelSandboxID,
	} {
		if meta.Labels[key] != old.Labels[key] {
			errs = append(errs, field.Forbidden(metadataPath.Child("labels").Key(key), detail))
		}
	}
	return errs
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

// validateSandboxSpec checks what differs from old, which is empty for a new
// sandbox, except for the template.
func validateSandboxSpec(spec, old *v1alpha1.SandboxSpec, path *field.Path) field.ErrorList {
	errs := validateChangedClaims(&spec.EmbeddedSandboxTemplate, &old.EmbeddedSandboxTemplate, path)
	if spec.ShutdownPolicy != "" && spec.ShutdownPolicy != old.ShutdownPolicy {
		errs = append(errs, validateEnum(spec.ShutdownPolicy, sandboxShutdownPolicies, path.Child("shutdownPolicy"))...)
	}
	errs = append(errs, validateChangedPause(spec.PauseStrategy, old.PauseStrategy, path)...)
	errs = append(errs, validateChangedContents(spec.PersistentContents, old.PersistentContents, path)...)
	errs = append(errs, validateChangedRuntimes(spec.Runtimes, old.Runtimes, path)...)
	return append(errs, refuseUnserved(unservedInSandbox(spec), path)...)
}

func unservedInSandbox(spec *v1alpha1.SandboxSpec) []unserved {
	return []unserved{
		{"lifecycle", spec.Lifecycle != nil, "upgrading sandboxes"},
		{"upgradePolicy", spec.UpgradePolicy != nil, "upgrading sandboxes"},
	}
}
