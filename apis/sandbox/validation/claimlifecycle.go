// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var shutdownPolicies = []v1alpha1.ShutdownPolicy{
	v1alpha1.ShutdownDelete, v1alpha1.ShutdownDeleteForeground, v1alpha1.ShutdownRetain,
}

// validateClaimDefaults validates claimDefaults of a set. They must not have a shutdownTime:
// claims that are created after it would expire at once.
func validateClaimDefaults(defaults *v1alpha1.SandboxClaimDefaults, path *field.Path) field.ErrorList {
	if defaults == nil || defaults.Lifecycle == nil {
		return nil
	}
	path = path.Child("lifecycle")
	errs := validateLifecycle(defaults.Lifecycle, path)
	if defaults.Lifecycle.ShutdownTime != nil {
		errs = append(errs, field.Forbidden(path.Child("shutdownTime"), "must not be set, because all claims of the pool would expire at the same time; set ttlSecondsAfterFinished"))
	}
	return errs
}

// validateLifecycle checks when a claim ends, and how. A time that has passed is allowed: it ends the claim at once.
func validateLifecycle(lifecycle *v1alpha1.SandboxClaimLifecycle, path *field.Path) field.ErrorList {
	errs := validateEnum(lifecycle.ShutdownPolicy, shutdownPolicies, path.Child("shutdownPolicy"))
	if ttl := lifecycle.TTLSecondsAfterFinished; ttl != nil && *ttl < 0 {
		errs = append(errs, field.Invalid(path.Child("ttlSecondsAfterFinished"), *ttl, "must be at least 0, which is at once"))
	}
	return errs
}
