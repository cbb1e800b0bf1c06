// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// What a claim adds to its sandboxes is stored with each of them, so it is bounded.
const (
	maxClaimEnv      = 256
	maxClaimEnvBytes = 32 << 10
	maxClaimVolumes  = 16
)

var injectionPolicies = []v1alpha1.InjectionPolicy{
	v1alpha1.InjectionAllowed, v1alpha1.InjectionOverrides, v1alpha1.InjectionDisallowed,
}

// validateInjection checks what the claim adds to its sandboxes. Whether the
// template lets it is seen once that is found.
func validateInjection(spec *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	errs := validateClaimEnv(spec.Env, path.Child("env"))
	return append(errs, validateClaimVolumes(spec.VolumeClaimTemplates, path.Child("volumeClaimTemplates"))...)
}

// validateClaimEnv checks variables. Their values are in no message.
func validateClaimEnv(env []v1alpha1.SandboxClaimEnvVar, path *field.Path) field.ErrorList {
	if len(env) > maxClaimEnv {
		return field.ErrorList{field.TooMany(path, len(env), maxClaimEnv)}
	}
	size := 0
	for _, variable := range env {
		size += len(variable.Name) + len(variable.Value) + len(variable.ContainerName)
	}
	if size > maxClaimEnvBytes {
		return field.ErrorList{field.TooLong(path, "", maxClaimEnvBytes)}
	}
	var errs field.ErrorList
	type place struct{ container, name string }
	seen := sets.Set[place]{}
	for i, variable := range env {
		at := path.Index(i)
		name := at.Child("name")
		if variable.Name == "" {
			errs = append(errs, field.Required(name, ""))
			continue
		}
		for _, msg := range validation.IsRelaxedEnvVarName(variable.Name) {
			errs = append(errs, field.Invalid(name, variable.Name, msg))
		}
		if variable.ContainerName != "" {
			for _, msg := range validation.IsDNS1123Label(variable.ContainerName) {
				errs = append(errs, field.Invalid(at.Child("containerName"), variable.ContainerName, msg))
			}
		}
		here := place{variable.ContainerName, variable.Name}
		if seen.Has(here) {
			errs = append(errs, field.Duplicate(name, variable.Name))
		}
		seen.Insert(here)
	}
	return errs
}

func validateClaimVolumes(volumes []runtime.RawExtension, path *field.Path) field.ErrorList {
	if len(volumes) > maxClaimVolumes {
		return field.ErrorList{field.TooMany(path, len(volumes), maxClaimVolumes)}
	}
	return validateVolumeClaimTemplates(volumes, path)
}

// validateInjectionUnchanged keeps what was put into sandboxes already, and may be
// put into others soon.
func validateInjectionUnchanged(spec, old *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Env)+len(old.Env) > 0 && !reflect.DeepEqual(spec.Env, old.Env) {
		errs = append(errs, field.Forbidden(path.Child("env"), "is immutable"))
	}
	if !slices.EqualFunc(spec.VolumeClaimTemplates, old.VolumeClaimTemplates, sameJSON) {
		errs = append(errs, field.Forbidden(path.Child("volumeClaimTemplates"), "is immutable"))
	}
	return errs
}

// validateFreshPool takes no pool for a claim that only fresh sandboxes can serve.
func validateFreshPool(spec *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	if !v1alpha1.NeedsFresh(spec) || spec.WarmPool == v1alpha1.WarmPoolNone {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("warmPool"), spec.WarmPool, fmt.Sprintf(
		"must be %s, or left out, with env or volumeClaimTemplates: running sandboxes cannot take them", v1alpha1.WarmPoolNone))}
}

// validateInjectionPolicies checks what a template lets claims add.
func validateInjectionPolicies(spec *v1alpha1.SandboxTemplateSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if policy := spec.EnvVarsInjectionPolicy; policy != "" {
		errs = append(errs, validateEnum(policy, injectionPolicies, path.Child("envVarsInjectionPolicy"))...)
	}
	if policy := spec.VolumeClaimTemplatesPolicy; policy != "" {
		errs = append(errs, validateEnum(policy, injectionPolicies, path.Child("volumeClaimTemplatesPolicy"))...)
	}
	return errs
}
