// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"reflect"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxPoolReplicas is how many sandboxes a set may keep. No etcd holds more of
// them; a larger number is a slip of the hand that would fill the store.
const maxPoolReplicas = 1000000

// maxBurst is how far a set may grow beyond its replicas: as far as one claim may
// ask for.
const maxBurst = maxReplicas

// MaxFreshSandboxes is the most that maxFreshSandboxes can be: as many as one claim may
// ask for.
const MaxFreshSandboxes = maxReplicas

// maxRevisionHistory bounds the SandboxTemplates that a set may keep for nothing but a look
// at them.
const maxRevisionHistory = 100

// ValidateSandboxSet checks a new set, after defaulting.
func ValidateSandboxSet(set *v1alpha1.SandboxSet) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&set.ObjectMeta, true, labelValueName, metadataPath)
	errs = append(errs, validateEmbeddedTemplate(&set.Spec.EmbeddedSandboxTemplate, specPath)...)
	return append(errs, validateSetSpec(&set.Spec, &v1alpha1.SandboxSetSpec{}, specPath)...)
}

// ValidateSandboxSetUpdate checks a changed set, also when the scale subresource
// changed it: what differs from before. The template may change: the controller
// rolls it out.
func ValidateSandboxSetUpdate(set, old *v1alpha1.SandboxSet) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&set.ObjectMeta, &old.ObjectMeta, metadataPath)
	if set.DeletionTimestamp != nil {
		return errs
	}
	errs = append(errs, validateChangedTemplate(&set.Spec.EmbeddedSandboxTemplate, &old.Spec.EmbeddedSandboxTemplate, specPath)...)
	return append(errs, validateSetSpec(&set.Spec, &old.Spec, specPath)...)
}

// ValidateSandboxSetStatusUpdate checks a changed status.
func ValidateSandboxSetStatusUpdate(set, old *v1alpha1.SandboxSet) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&set.ObjectMeta, &old.ObjectMeta, metadataPath)
	status := &set.Status
	errs = append(errs, validateCount(status.ObservedGeneration, statusPath.Child("observedGeneration"))...)
	errs = append(errs, validateCount(int64(status.Replicas), statusPath.Child("replicas"))...)
	errs = append(errs, validateCount(int64(status.AvailableReplicas), statusPath.Child("availableReplicas"))...)
	errs = append(errs, validateCount(int64(status.UpdatedReplicas), statusPath.Child("updatedReplicas"))...)
	errs = append(errs, validateCount(int64(status.UpdatedAvailableReplicas), statusPath.Child("updatedAvailableReplicas"))...)
	return append(errs, metav1validation.ValidateConditions(status.Conditions, statusPath.Child("conditions"))...)
}

// validateSetSpec checks what differs from old, which is empty for a new set, except
// for the template.
func validateSetSpec(spec, old *v1alpha1.SandboxSetSpec, path *field.Path) field.ErrorList {
	embedded, before := &spec.EmbeddedSandboxTemplate, &old.EmbeddedSandboxTemplate
	errs := validatePoolReplicas(spec.Replicas, path.Child("replicas"))
	errs = append(errs, validateChangedClaims(embedded, before, path)...)
	if !samePods(embedded, before) {
		errs = append(errs, validateSetReference(embedded.TemplateRef, path.Child("templateRef"))...)
		errs = append(errs, ValidateMounted(embedded.Template, embedded.VolumeClaimTemplates, path.Child("volumeClaimTemplates"))...)
	}
	errs = append(errs, validateChangedPatch(spec, old, path.Child("patch"))...)
	errs = append(errs, validateChangedPause(spec.PauseStrategy, old.PauseStrategy, path)...)
	errs = append(errs, validateChangedContents(spec.PersistentContents, old.PersistentContents, path)...)
	errs = append(errs, validateChangedRuntimes(spec.Runtimes, old.Runtimes, path)...)
	errs = append(errs, validatePodMetadataPolicy(spec.PodMetadataPolicy, old.PodMetadataPolicy, path.Child("podMetadataPolicy"))...)
	errs = append(errs, validateChangedMaxUnavailable(
		spec.ScaleStrategy.MaxUnavailable, old.ScaleStrategy.MaxUnavailable, path.Child("scaleStrategy"))...)
	errs = append(errs, validateUpdateType(spec.UpdateStrategy.Type, path.Child("updateStrategy", "type"))...)
	errs = append(errs, validateRange(spec.ScaleStrategy.Burst, maxBurst, path.Child("scaleStrategy", "burst"))...)
	errs = append(errs, validateRange(spec.MaxFreshSandboxes, MaxFreshSandboxes, path.Child("maxFreshSandboxes"))...)
	errs = append(errs, validateClaimDefaults(spec.ClaimDefaults, path.Child("claimDefaults"))...)
	errs = append(errs, validateRange(spec.RevisionHistoryLimit, maxRevisionHistory, path.Child("revisionHistoryLimit"))...)
	return append(errs, validateChangedMaxUnavailable(
		spec.UpdateStrategy.MaxUnavailable, old.UpdateStrategy.MaxUnavailable, path.Child("updateStrategy"))...)
}

func validatePoolReplicas(replicas *int32, path *field.Path) field.ErrorList {
	switch {
	case replicas == nil:
		return field.ErrorList{field.Required(path, "number of unused sandboxes to keep")}
	case *replicas < 0:
		return field.ErrorList{field.Invalid(path, *replicas, "replicas cannot be negative")}
	case *replicas > maxPoolReplicas:
		return field.ErrorList{field.Invalid(path, *replicas, fmt.Sprintf("must be at most %d", maxPoolReplicas))}
	}
	return nil
}

// updateTypes are the ways to replace sandboxes of an older template. None given is
// RollingUpdate.
var updateTypes = []v1alpha1.SandboxSetUpdateType{
	v1alpha1.SetUpdateRolling, v1alpha1.SetUpdateRecreate, v1alpha1.SetUpdateOnReplenish,
}

func validateUpdateType(value v1alpha1.SandboxSetUpdateType, path *field.Path) field.ErrorList {
	if value == "" || slices.Contains(updateTypes, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, updateTypes)}
}

func validateRange(value *int32, most int32, path *field.Path) field.ErrorList {
	if value != nil && (*value < 0 || *value > most) {
		return field.ErrorList{field.Invalid(path, *value, fmt.Sprintf("must be from 0 to %d", most))}
	}
	return nil
}

// validateChangedMaxUnavailable takes what can be scaled: a number or a percentage. An
// int of the wrong type reads as 0, so a negative value can be in either form.
func validateChangedMaxUnavailable(value, old *intstr.IntOrString, path *field.Path) field.ErrorList {
	if value == nil || reflect.DeepEqual(value, old) {
		return nil
	}
	path = path.Child("maxUnavailable")
	if scaled, err := intstr.GetScaledValueFromIntOrPercent(value, 100, true); err != nil || scaled < 0 {
		return field.ErrorList{field.Invalid(path, value.String(), "maxUnavailable is invalid")}
	}
	return nil
}

// validateSetReference keeps to the names that fit into the label by which the
// sandboxes of all sets of one template are found.
func validateSetReference(ref *v1alpha1.SandboxTemplateRef, path *field.Path) field.ErrorList {
	if ref == nil || len(ref.Name) <= validation.LabelValueMaxLength || len(ref.Name) > validation.DNS1123SubdomainMaxLength {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("name"), ref.Name, fmt.Sprintf(
		"must be no more than %d characters, because it is also the value of a label on sandboxes", validation.LabelValueMaxLength))}
}

// validateChangedPatch checks a patch by itself, where it may be.
func validateChangedPatch(spec, old *v1alpha1.SandboxSetSpec, path *field.Path) field.ErrorList {
	switch patch := spec.Patch; {
	case patch == nil, samePatch(patch, old.Patch) && (spec.TemplateRef == nil) == (old.TemplateRef == nil):
		return nil
	case spec.TemplateRef == nil:
		return field.ErrorList{field.Forbidden(path, "only together with templateRef; a template of the set's own can be changed itself")}
	default:
		return validatePatch(patch, path)
	}
}

func samePatch(a, b *runtime.RawExtension) bool {
	if a == nil || b == nil {
		return a == b
	}
	return sameJSON(*a, *b)
}

// SamePodsOfSets reports whether two sets say the same of what their pods look like.
func SamePodsOfSets(a, b *v1alpha1.SandboxSetSpec) bool {
	return samePods(&a.EmbeddedSandboxTemplate, &b.EmbeddedSandboxTemplate) && samePatch(a.Patch, b.Patch)
}
