// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var injectionPolicies = []v1alpha1.InjectionPolicy{
	v1alpha1.InjectionAllowed, v1alpha1.InjectionOverrides, v1alpha1.InjectionDisallowed,
}

var injectionContainers = []v1alpha1.InjectionContainers{v1alpha1.InjectionContainersAll, v1alpha1.InjectionContainersFirst}

// ValidateSandboxTemplate checks a new template.
func ValidateSandboxTemplate(template *v1alpha1.SandboxTemplate) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&template.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, metadataPath)
	errs = append(errs, validateEmbeddedTemplate(&template.Spec.EmbeddedSandboxTemplate, specPath)...)
	return append(errs, validateTemplateSpec(template, &v1alpha1.SandboxTemplateSpec{}, specPath)...)
}

// ValidateSandboxTemplateUpdate checks a changed template: what differs from
// before.
func ValidateSandboxTemplateUpdate(template, old *v1alpha1.SandboxTemplate) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&template.ObjectMeta, &old.ObjectMeta, metadataPath)
	if template.DeletionTimestamp != nil {
		return errs
	}
	errs = append(errs, validateChangedTemplate(
		&template.Spec.EmbeddedSandboxTemplate, &old.Spec.EmbeddedSandboxTemplate, specPath)...)
	return append(errs, validateTemplateSpec(template, &old.Spec, specPath)...)
}

// validateTemplateSpec checks what differs from old, which is empty for a new
// template, except for the pod template.
func validateTemplateSpec(template *v1alpha1.SandboxTemplate, old *v1alpha1.SandboxTemplateSpec, path *field.Path) field.ErrorList {
	spec := &template.Spec
	embedded, before := &spec.EmbeddedSandboxTemplate, &old.EmbeddedSandboxTemplate
	errs := validateChangedClaims(embedded, before, path)
	if !samePods(embedded, before) {
		errs = append(errs, validateNoSelfReference(template, path.Child("templateRef"))...)
	}
	errs = append(errs, validateChangedPause(spec.PauseStrategy, old.PauseStrategy, path)...)
	errs = append(errs, validateChangedContents(spec.PersistentContents, old.PersistentContents, path)...)
	errs = append(errs, validateChangedRuntimes(spec.Runtimes, old.Runtimes, path)...)
	errs = append(errs, validateRange(spec.MaxFreshSandboxes, MaxFreshSandboxes, path.Child("maxFreshSandboxes"))...)
	errs = append(errs, validateNetworkPolicy(spec, old, path)...)
	errs = append(errs, validatePodMetadataPolicy(spec.PodMetadataPolicy, old.PodMetadataPolicy, path.Child("podMetadataPolicy"))...)
	errs = append(errs, validateVolumeOptions(spec.VolumeClaimTemplatesOptions, path.Child("volumeClaimTemplatesOptions"))...)
	return append(errs, validateInjectionPolicies(spec, path)...)
}

// validateNoSelfReference finds the shortest circle, which needs no look at any
// other object.
func validateNoSelfReference(template *v1alpha1.SandboxTemplate, path *field.Path) field.ErrorList {
	ref := template.Spec.TemplateRef
	if ref == nil || ref.Kind == v1alpha1.TemplateKindPodTemplate || ref.Name == "" || ref.Name != template.Name {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("name"), ref.Name, "a template cannot refer to itself")}
}

// validateInjectionPolicies checks what a template lets claims add.
func validateInjectionPolicies(spec *v1alpha1.SandboxTemplateSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if policy := spec.EnvVarsInjectionPolicy; policy != "" {
		errs = append(errs, validateEnum(policy, injectionPolicies, path.Child("envVarsInjectionPolicy"))...)
	}
	if containers := spec.EnvVarsInjectionContainers; containers != "" {
		errs = append(errs, validateEnum(containers, injectionContainers, path.Child("envVarsInjectionContainers"))...)
	}
	if policy := spec.VolumeClaimTemplatesPolicy; policy != "" {
		errs = append(errs, validateEnum(policy, injectionPolicies, path.Child("volumeClaimTemplatesPolicy"))...)
	}
	return errs
}

// maxVolumeOptions bounds each list of VolumeClaimTemplatesOptions.
const maxVolumeOptions = 64

// validateVolumeOptions checks what volumes a template lets claims ask for.
func validateVolumeOptions(options *v1alpha1.VolumeClaimTemplatesOptions, path *field.Path) field.ErrorList {
	if options == nil {
		return nil
	}
	var errs field.ErrorList
	classes, sources := path.Child("storageClassNames"), path.Child("dataSources")
	if n := len(options.StorageClassNames); n > maxVolumeOptions {
		return field.ErrorList{field.TooMany(classes, n, maxVolumeOptions)}
	}
	if n := len(options.DataSources); n > maxVolumeOptions {
		return field.ErrorList{field.TooMany(sources, n, maxVolumeOptions)}
	}
	for i, class := range options.StorageClassNames {
		if class == "" {
			continue
		}
		for _, msg := range validation.IsDNS1123Subdomain(class) {
			errs = append(errs, field.Invalid(classes.Index(i), class, msg))
		}
	}
	for i, source := range options.DataSources {
		kind, group, hasGroup := strings.Cut(source, ".")
		if len(validation.IsDNS1123Label(strings.ToLower(kind))) > 0 || hasGroup && len(validation.IsDNS1123Subdomain(group)) > 0 {
			errs = append(errs, field.Invalid(sources.Index(i), source, "must be a kind, or a kind and its API group, such as VolumeSnapshot.snapshot.storage.k8s.io"))
		}
	}
	return errs
}

// SamePodsOfTemplates reports whether two templates say the same of what their pods
// look like.
func SamePodsOfTemplates(a, b *v1alpha1.SandboxTemplateSpec) bool {
	return samePods(&a.EmbeddedSandboxTemplate, &b.EmbeddedSandboxTemplate)
}
