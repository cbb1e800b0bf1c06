// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A claim of agent-sandbox is refused for what a schema can find: what is missing, negative,
// too large, or no value of an enumeration. What takes a template to judge, or is a rule on
// keys, is stored and told by the condition Ready, where clients of agent-sandbox look for it.

// validateAgentClaimSpec checks the spec of a claim of agent-sandbox. What limits bound is
// judged where it differs from old.
func validateAgentClaimSpec(spec, old *v1alpha1.SandboxClaimSpec, limits ClaimLimits, path *field.Path) field.ErrorList {
	errs := validateAgentSource(spec, path)
	errs = append(errs, validateAgentEnv(spec.Env, path.Child("env"))...)
	errs = append(errs, validateAgentVolumes(spec.VolumeClaimTemplates, path.Child("volumeClaimTemplates"))...)
	return append(errs, validateAnyClaimSpec(spec, old, limits, path)...)
}

// validateAgentSource checks that the claim says where its sandbox comes from.
func validateAgentSource(spec *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	pool := path.Child("warmPoolRef", "name")
	switch {
	case spec.WarmPoolRef != nil:
		errs = validateReference(spec.WarmPoolRef.Name, pool)
	case spec.SandboxTemplateRef == nil && spec.TemplateName == "":
		errs = field.ErrorList{field.Required(pool, "name of the SandboxWarmPool to claim from, unless sandboxTemplateRef is set")}
	}
	if ref := spec.SandboxTemplateRef; ref != nil {
		errs = append(errs, validateReference(ref.Name, path.Child("sandboxTemplateRef", "name"))...)
	}
	return append(errs, validateWarmPool(spec, path)...)
}

// validateAgentEnv bounds the variables, and takes each name that a variable can have. That
// a name comes twice, or is one of the template's, is for the template to judge.
func validateAgentEnv(env []v1alpha1.SandboxClaimEnvVar, path *field.Path) field.ErrorList {
	if len(env) > maxClaimEnv {
		return field.ErrorList{field.TooMany(path, len(env), maxClaimEnv)}
	}
	var errs field.ErrorList
	size := 0
	for i, variable := range env {
		size += len(variable.Name) + len(variable.Value) + len(variable.ContainerName)
		name := path.Index(i).Child("name")
		if variable.Name == "" {
			errs = append(errs, field.Required(name, ""))
			continue
		}
		for _, msg := range validation.IsRelaxedEnvVarName(variable.Name) {
			errs = append(errs, field.Invalid(name, variable.Name, msg))
		}
	}
	if size > maxClaimEnvBytes {
		return field.ErrorList{field.TooLong(path, "", maxClaimEnvBytes)}
	}
	return errs
}

// validateAgentVolumes bounds the volumes, and takes all that can be read.
func validateAgentVolumes(volumes []runtime.RawExtension, path *field.Path) field.ErrorList {
	if len(volumes) > maxClaimVolumes {
		return field.ErrorList{field.TooMany(path, len(volumes), maxClaimVolumes)}
	}
	size := 0
	for i := range volumes {
		size += len(volumes[i].Raw)
		if size > maxTemplateSize {
			return field.ErrorList{field.TooLong(path, "", maxTemplateSize)}
		}
		if _, err := v1alpha1.VolumeClaimTemplate(&volumes[i]); err != nil {
			return field.ErrorList{undecodable(err, path.Index(i))}
		}
	}
	return nil
}
