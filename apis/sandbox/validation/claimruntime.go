// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// What a claim brings into agent-runtimes is kept on each of its sandboxes, sealed, so it
// is bounded.
const (
	maxEnvVars      = 256
	maxEnvVarsBytes = 32 << 10
	maxMounts       = 16
	maxMountsBytes  = 16 << 10
	maxPathBytes    = 1024
	maxMountID      = 253
)

// csiKeyPrefix begins the attributes that tell a driver which pod it mounts for. They are
// not a user's to say.
const csiKeyPrefix = "csi.storage.k8s.io/"

// Attributes that the mount's other fields are handed to the driver as.
var mountKeys = []string{"mountID", "subPath"}

// systemPaths are where nothing is mounted: what the kernel and the container's runtime
// have there is believed by programs that are no user's, and the agent-runtime lives there.
var systemPaths = []string{"/dev", "/mnt/envd", "/proc", "/run/secrets", "/sys", "/var/run/secrets"}

// MaxRuntimeAccess is how many sandboxes one request for access to runtimes returns.
const MaxRuntimeAccess = 1000

// ValidateSandboxClaimRuntimeAccess checks a request for access to the runtimes of a claim,
// as far as it does not depend on the claim.
func ValidateSandboxClaimRuntimeAccess(access *v1alpha1.SandboxClaimRuntimeAccess) field.ErrorList {
	return validateSandboxNames(access.Spec.SandboxNames, MaxRuntimeAccess)
}

// validateClaimRuntime checks what a claim brings into the agent-runtimes of its sandboxes,
// where that differs from old, which is empty for a new claim.
func validateClaimRuntime(spec, old *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !maps.Equal(spec.EnvVars, old.EnvVars) {
		errs = append(errs, validateEnvVars(spec.EnvVars, path.Child("envVars"))...)
	}
	if slices.EqualFunc(spec.DynamicVolumesMount, old.DynamicVolumesMount, sameMount) {
		return errs
	}
	if spec.SkipInitRuntime && len(spec.DynamicVolumesMount) > 0 {
		errs = append(errs, field.Invalid(path.Child("skipInitRuntime"), true, "init runtime is required when csi mount is specified"))
	}
	return append(errs, validateMounts(spec.DynamicVolumesMount, path.Child("dynamicVolumesMount"))...)
}

// validateRuntimeUnchanged keeps what went into runtimes already, and may go into others
// soon.
func validateRuntimeUnchanged(spec, old *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !maps.Equal(spec.EnvVars, old.EnvVars) {
		errs = append(errs, field.Forbidden(path.Child("envVars"), "is immutable"))
	}
	if !slices.EqualFunc(spec.DynamicVolumesMount, old.DynamicVolumesMount, sameMount) {
		errs = append(errs, field.Forbidden(path.Child("dynamicVolumesMount"), "is immutable"))
	}
	if spec.SkipInitRuntime != old.SkipInitRuntime {
		errs = append(errs, field.Forbidden(path.Child("skipInitRuntime"), "is immutable"))
	}
	return errs
}

func sameMount(a, b v1alpha1.CSIMountConfig) bool {
	if len(a.Attributes)+len(b.Attributes) == 0 {
		a.Attributes, b.Attributes = nil, nil
	}
	return reflect.DeepEqual(a, b)
}

// validateEnvVars checks variables. Their values are in no message.
func validateEnvVars(vars map[string]string, path *field.Path) field.ErrorList {
	if len(vars) > maxEnvVars {
		return field.ErrorList{field.TooMany(path, len(vars), maxEnvVars)}
	}
	if size(vars) > maxEnvVarsBytes {
		return field.ErrorList{field.TooLong(path, "", maxEnvVarsBytes)}
	}
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		for _, msg := range validation.IsRelaxedEnvVarName(name) {
			errs = append(errs, field.Invalid(path, name, msg))
		}
		if strings.ContainsRune(vars[name], 0) {
			errs = append(errs, field.Forbidden(path.Key(name), "its value has a NUL character, which no variable can have"))
		}
	}
	return errs
}

func validateMounts(mounts []v1alpha1.CSIMountConfig, at *field.Path) field.ErrorList {
	if len(mounts) > maxMounts {
		return field.ErrorList{field.TooMany(at, len(mounts), maxMounts)}
	}
	if mountsBytes(mounts) > maxMountsBytes {
		return field.ErrorList{field.TooLong(at, "", maxMountsBytes)}
	}
	var errs field.ErrorList
	seen := sets.Set[string]{}
	for i := range mounts {
		mount, here := &mounts[i], at.Index(i)
		errs = append(errs, validateReference(mount.PvName, here.Child("pvName"))...)
		errs = append(errs, validateMountPath(mount.MountPath, here.Child("mountPath"))...)
		errs = append(errs, validateSubPath(mount.SubPath, here.Child("subPath"))...)
		errs = append(errs, validateAttributes(mount.Attributes, here.Child("attributes"))...)
		if len(mount.MountID) > maxMountID {
			errs = append(errs, field.TooLong(here.Child("mountID"), "", maxMountID))
		} else if strings.ContainsFunc(mount.MountID, unicode.IsControl) {
			errs = append(errs, field.Invalid(here.Child("mountID"), mount.MountID, "must not have control characters"))
		}
		if seen.Has(mount.MountPath) {
			errs = append(errs, field.Duplicate(here.Child("mountPath"), mount.MountPath))
		}
		seen.Insert(mount.MountPath)
	}
	return errs
}

func validateMountPath(value string, at *field.Path) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(at, "")}
	case len(value) > maxPathBytes:
		return field.ErrorList{field.TooLong(at, "", maxPathBytes)}
	case strings.ContainsFunc(value, unicode.IsControl) || strings.Contains(value, ":"):
		return field.ErrorList{field.Invalid(at, value, "must not have control characters or colons")}
	case !path.IsAbs(value) || path.Clean(value) != value || value == "/":
		return field.ErrorList{field.Invalid(at, value, "must be an absolute path other than /, without . and .., and without slashes that are not needed")}
	}
	for _, system := range systemPaths {
		if value == system || strings.HasPrefix(value, system+"/") || strings.HasPrefix(system, value+"/") {
			return field.ErrorList{field.Invalid(at, value, fmt.Sprintf("must not cover, or be in, %s", system))}
		}
	}
	return nil
}

func validateSubPath(value string, at *field.Path) field.ErrorList {
	switch {
	case len(value) > maxPathBytes:
		return field.ErrorList{field.TooLong(at, "", maxPathBytes)}
	case strings.ContainsFunc(value, unicode.IsControl):
		return field.ErrorList{field.Invalid(at, value, "must not have control characters")}
	case path.IsAbs(value) || slices.Contains(strings.Split(value, "/"), ".."):
		return field.ErrorList{field.Invalid(at, value, "must be a relative path without ..")}
	}
	return nil
}

// validateAttributes checks attributes. Their values are in no message. Drivers commonly
// take keys that differ only in case for the same.
func validateAttributes(attributes map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.Set[string]{}
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		folded := strings.ToLower(key)
		switch {
		case seen.Has(folded):
			errs = append(errs, field.Invalid(at, key, "differs from another key only in case"))
		case key == "":
			errs = append(errs, field.Invalid(at, key, "a key must not be empty"))
		case strings.HasPrefix(folded, csiKeyPrefix):
			errs = append(errs, field.Invalid(at, key, "keys under "+csiKeyPrefix+" are the system's"))
		case slices.ContainsFunc(mountKeys, func(own string) bool { return strings.ToLower(own) == folded }):
			errs = append(errs, field.Invalid(at, key, "is a field of the mount"))
		}
		seen.Insert(folded)
	}
	return errs
}

// sealedBytes is how much of a claim stands on each of its sandboxes, sealed: encoded as
// JSON and then as base64, with some bytes around it.
func sealedBytes(spec *v1alpha1.SandboxClaimSpec) int64 {
	plain := encoded(spec.EnvVars) + mountsBytes(spec.DynamicVolumesMount)
	if plain == 0 {
		return 0
	}
	const around = 256
	return plain*4/3 + around
}

func mountsBytes(mounts []v1alpha1.CSIMountConfig) int64 {
	if len(mounts) == 0 {
		return 0
	}
	raw, err := json.Marshal(mounts)
	if err != nil {
		return 0 // strings always encode
	}
	return int64(len(raw))
}
