// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"reflect"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	// maxReplicas is how many sandboxes one claim may ask for. The claim lists them
	// in its status, and a request to etcd holds 1.5 MiB: 10,000 entries with UIDs,
	// and with names and addresses of usual length, take about two thirds of that.
	maxReplicas = 10000

	// maxAtomicReplicas is how many sandboxes one transaction can bind: etcd takes
	// 128 operations a transaction, and the claim is one of them.
	maxAtomicReplicas = 127
)

// What a claim adds to its sandboxes is stored with each of them, so it is bounded.
const (
	maxClaimEnv      = 256
	maxClaimEnvBytes = 32 << 10
	maxClaimVolumes  = 16
)

var (
	allocationPolicies = []v1alpha1.AllocationPolicy{v1alpha1.AllocationBestEffort, v1alpha1.AllocationAllOrNothing}
	shortagePolicies   = []v1alpha1.ShortagePolicy{v1alpha1.ShortageWait, v1alpha1.ShortageFail}
	reclaimPolicies    = []v1alpha1.ReclaimPolicy{v1alpha1.ReclaimRetain, v1alpha1.ReclaimDelete}
	claimPhases        = []v1alpha1.SandboxClaimPhase{
		v1alpha1.SandboxClaimPhaseClaiming, v1alpha1.SandboxClaimPhaseCompleted,
	}
)

// ValidateSandboxClaim checks a new claim, after defaulting.
func ValidateSandboxClaim(claim *v1alpha1.SandboxClaim, limits ClaimLimits) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&claim.ObjectMeta, true, labelValueName, metadataPath)
	errs = append(errs, validatePrewarmStrategy(claim.Annotations, metadataPath.Child("annotations"))...)
	errs = append(errs, validateOwnAnnotations(claim.Annotations, nil)...)
	errs = append(errs, validatePlatformKeys(&claim.Spec, &v1alpha1.SandboxClaimSpec{}, specPath)...)
	if v1alpha1.OfAgentSandbox(claim) {
		return append(errs, validateAgentClaimSpec(&claim.Spec, &v1alpha1.SandboxClaimSpec{}, limits, specPath)...)
	}
	return append(errs, validateClaimSpec(&claim.Spec, &v1alpha1.SandboxClaimSpec{}, limits, specPath)...)
}

// ValidateSandboxClaimRelease checks what of a claim is asked to be released, as far as it
// does not depend on the claim.
func ValidateSandboxClaimRelease(release *v1alpha1.SandboxClaimRelease) field.ErrorList {
	return validateSandboxNames(release.Spec.SandboxNames, maxReplicas)
}

// validateSandboxNames checks the names of sandboxes of a claim, of which there may be most.
// It stops at the first bad one, of which there can be many.
func validateSandboxNames(names []string, most int) field.ErrorList {
	path := specPath.Child("sandboxNames")
	if n := len(names); n > most {
		return field.ErrorList{field.TooMany(path, n, most)}
	}
	for i, name := range names {
		if errs := validateReference(name, path.Index(i)); len(errs) > 0 {
			return errs
		}
	}
	return nil
}

// ValidateSandboxClaimUpdate checks a changed claim.
func ValidateSandboxClaimUpdate(claim, old *v1alpha1.SandboxClaim, limits ClaimLimits) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&claim.ObjectMeta, &old.ObjectMeta, metadataPath)
	errs = append(errs, validateOwnAnnotations(claim.Annotations, old.Annotations)...)
	errs = append(errs, validatePlatformKeys(&claim.Spec, &old.Spec, specPath)...)
	agent := v1alpha1.OfAgentSandbox(old)
	if agent {
		errs = append(errs, validateAgentClaimSpec(&claim.Spec, &old.Spec, limits, specPath)...)
	} else {
		errs = append(errs, validateClaimSpec(&claim.Spec, &old.Spec, limits, specPath)...)
	}
	if replicasOf(claim.Spec.Replicas) != replicasOf(old.Spec.Replicas) {
		errs = append(errs, field.Invalid(specPath.Child("replicas"), claim.Spec.Replicas, "replicas is immutable"))
	}
	// What sandboxes are bound already were bound under these.
	if claim.Spec.Allocation != old.Spec.Allocation {
		errs = append(errs, field.Invalid(specPath.Child("allocation"), claim.Spec.Allocation, "allocation is immutable"))
	}
	if claim.Spec.ReclaimPolicy != old.Spec.ReclaimPolicy {
		errs = append(errs, field.Invalid(specPath.Child("reclaimPolicy"), claim.Spec.ReclaimPolicy, "reclaimPolicy is immutable"))
	}
	errs = append(errs, validateRuntimeUnchanged(&claim.Spec, &old.Spec, specPath)...)
	if agent {
		return errs // it may change all that agent-sandbox knows: it is for the next sandbox
	}
	errs = append(errs, validateChoicesUnchanged(claim, old, specPath)...)
	return append(errs, validateInjectionUnchanged(&claim.Spec, &old.Spec, specPath)...)
}

// ValidateSandboxClaimStatusUpdate checks a changed status. Clients may write any
// status that makes sense in itself; the server heals one that is not true.
func ValidateSandboxClaimStatusUpdate(claim, old *v1alpha1.SandboxClaim) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&claim.ObjectMeta, &old.ObjectMeta, metadataPath)
	status := &claim.Status
	if status.Phase != "" {
		errs = append(errs, validateEnum(status.Phase, claimPhases, statusPath.Child("phase"))...)
	}
	errs = append(errs, validateCount(int64(status.ClaimedReplicas), statusPath.Child("claimedReplicas"))...)
	errs = append(errs, validateCount(int64(status.FailedReplicas), statusPath.Child("failedReplicas"))...)
	errs = append(errs, validateCount(status.ObservedGeneration, statusPath.Child("observedGeneration"))...)
	errs = append(errs, metav1validation.ValidateConditions(status.Conditions, statusPath.Child("conditions"))...)
	return append(errs, validateClaimedSandboxes(status.Sandboxes, statusPath.Child("sandboxes"))...)
}

// validateClaimSpec checks a spec. What limits bound is judged where it differs from
// old, which is empty for a new claim.
func validateClaimSpec(spec, old *v1alpha1.SandboxClaimSpec, limits ClaimLimits, path *field.Path) field.ErrorList {
	errs := validateClaimSource(spec, path)
	errs = append(errs, validateWarmPool(spec, path)...)
	errs = append(errs, validateFreshPool(spec, path)...)
	errs = append(errs, validateClaimEnv(spec.Env, path.Child("env"))...)
	errs = append(errs, validateClaimVolumes(spec.VolumeClaimTemplates, path.Child("volumeClaimTemplates"))...)
	errs = append(errs, validatePauseTime(spec, path.Child("pauseTime"))...)
	if spec.AdditionalPodMetadata != nil {
		errs = append(errs, validateAdditionalPodMetadata(spec, old, path)...)
	}
	return append(errs, validateAnyClaimSpec(spec, old, limits, path)...)
}

// validateAnyClaimSpec checks what the claims of all APIs have.
func validateAnyClaimSpec(spec, old *v1alpha1.SandboxClaimSpec, limits ClaimLimits, path *field.Path) field.ErrorList {
	errs := validateEnum(spec.Allocation, allocationPolicies, path.Child("allocation"))
	errs = append(errs, validateEnum(spec.OnShortage, shortagePolicies, path.Child("onShortage"))...)
	errs = append(errs, validateEnum(spec.ReclaimPolicy, reclaimPolicies, path.Child("reclaimPolicy"))...)
	errs = append(errs, validateClaimReplicas(spec, path.Child("replicas"))...)
	errs = append(errs, validateTimeout(spec.ClaimTimeout, old.ClaimTimeout, limits.MaxTimeout, path, "claimTimeout")...)
	errs = append(errs, validateTimeout(spec.WaitReadyTimeout, old.WaitReadyTimeout, limits.MaxWaitReadyTimeout, path, "waitReadyTimeout")...)
	errs = append(errs, validateClaimMetadata(spec, old, limits, path)...)
	errs = append(errs, validateRuntimes(spec.Runtimes, path.Child("runtimes"))...)
	errs = append(errs, validateClaimRuntime(spec, old, path)...)
	if spec.InplaceUpdate != nil {
		errs = append(errs, validateInplaceUpdate(spec.InplaceUpdate, old.InplaceUpdate, path.Child("inplaceUpdate"))...)
	}
	if spec.Lifecycle != nil {
		errs = append(errs, validateLifecycle(spec.Lifecycle, path.Child("lifecycle"))...)
	}
	return errs
}

// validatePauseTime wants a sandbox to be paused before it is deleted.
func validatePauseTime(spec *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	if spec.PauseTime == nil || spec.ShutdownTime == nil || spec.PauseTime.Before(spec.ShutdownTime) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, spec.PauseTime.UTC().Format(time.RFC3339), "must be before shutdownTime")}
}

// validateClaimSource checks that the claim says where its sandboxes come from,
// and says it once. Whether that exists is for the status to tell: claims may be
// created before their set or template.
func validateClaimSource(spec *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	name, ref, pool := spec.TemplateName, spec.SandboxTemplateRef, spec.WarmPoolRef
	namePath, refPath, poolPath := path.Child("templateName"), path.Child("sandboxTemplateRef"), path.Child("warmPoolRef")
	if pool != nil {
		errs := validateReference(pool.Name, poolPath.Child("name"))
		if name != "" {
			errs = append(errs, field.Invalid(poolPath, pool.Name, "may not be set together with templateName"))
		}
		if ref != nil {
			errs = append(errs, validateReference(ref.Name, refPath.Child("name"))...)
		}
		return errs
	}
	switch {
	case name == "" && ref == nil:
		return field.ErrorList{field.Required(namePath, "name of the SandboxSet to claim from, unless sandboxTemplateRef is set")}
	case name != "" && ref != nil:
		return field.ErrorList{field.Invalid(refPath, ref.Name, "may not be set together with templateName")}
	case ref != nil:
		return validateReference(ref.Name, refPath.Child("name"))
	default:
		return validateReference(name, namePath)
	}
}

// validateWarmPool checks which pools may serve the claim. One that may have neither
// warm sandboxes nor fresh ones can only wait for its end.
func validateWarmPool(spec *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	switch pool := spec.WarmPool; {
	case pool == v1alpha1.WarmPoolDefault:
		return nil
	case pool != v1alpha1.WarmPoolNone:
		return validateReference(pool, path.Child("warmPool"))
	case spec.CreateOnNoStock != nil && !*spec.CreateOnNoStock:
		return field.ErrorList{field.Invalid(path.Child("createOnNoStock"), false,
			"must be true with warmPool none: otherwise there are neither warm sandboxes nor fresh ones for the claim")}
	}
	return nil
}

// validateFreshPool takes no pool for a claim that only fresh sandboxes can serve.
func validateFreshPool(spec *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	if !v1alpha1.NeedsFresh(spec) || spec.WarmPool == v1alpha1.WarmPoolNone {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("warmPool"), spec.WarmPool, fmt.Sprintf(
		"must be %s, or left out, with env or volumeClaimTemplates: running sandboxes cannot take them", v1alpha1.WarmPoolNone))}
}

func validateClaimReplicas(spec *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	if spec.Replicas == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	switch replicas := *spec.Replicas; {
	case replicas < 1:
		return field.ErrorList{field.Invalid(path, replicas, "must be at least 1")}
	case replicas > maxReplicas:
		return field.ErrorList{field.Invalid(path, replicas, fmt.Sprintf("must be at most %d", maxReplicas))}
	case replicas > maxAtomicReplicas && spec.Allocation == v1alpha1.AllocationAllOrNothing:
		return field.ErrorList{field.Invalid(path, replicas, fmt.Sprintf(
			"must be at most %d with allocation %s, which binds all in one transaction",
			maxAtomicReplicas, v1alpha1.AllocationAllOrNothing))}
	}
	return nil
}

func validateTimeout(value, old *metav1.Duration, most time.Duration, parent *field.Path, name string) field.ErrorList {
	switch {
	case value == nil:
		return nil
	case value.Duration < time.Second:
		return field.ErrorList{field.Invalid(parent.Child(name), value.Duration.String(), name+" must be at least 1 second")}
	case value.Duration > most && (old == nil || value.Duration > old.Duration):
		return field.ErrorList{field.Invalid(parent.Child(name), value.Duration.String(), fmt.Sprintf("%s must be at most %s here", name, most))}
	}
	return nil
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
	return ValidateVolumeClaimTemplates(volumes, path)
}

// validateInjectionUnchanged keeps what was put into sandboxes already, and may be
// put into others soon.
func validateInjectionUnchanged(spec, old *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Env)+len(old.Env) > 0 && !reflect.DeepEqual(spec.Env, old.Env) {
		errs = append(errs, field.Forbidden(path.Child("env"), "is immutable"))
	}
	if !sameVolumeClaims(spec.VolumeClaimTemplates, old.VolumeClaimTemplates) {
		errs = append(errs, field.Forbidden(path.Child("volumeClaimTemplates"), "is immutable"))
	}
	return errs
}

func validateClaimedSandboxes(sandboxes []v1alpha1.ClaimedSandbox, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := make(map[string]bool, len(sandboxes))
	for i, sandbox := range sandboxes {
		name := path.Index(i).Child("name")
		errs = append(errs, validateReference(sandbox.Name, name)...)
		if seen[sandbox.Name] {
			errs = append(errs, field.Duplicate(name, sandbox.Name))
		}
		seen[sandbox.Name] = true
	}
	return errs
}

// replicasOf treats an object from before defaulting as the default would.
func replicasOf(replicas *int32) int32 {
	if replicas == nil {
		return v1alpha1.DefaultClaimReplicas
	}
	return *replicas
}
