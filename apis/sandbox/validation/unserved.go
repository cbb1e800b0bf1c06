// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Fields of the API whose behaviour is not there yet. An object that sets one is
// refused, because to accept and ignore it would be a promise not kept. To serve
// a field, take its line away here, and add the checks of its value.

// unserved is one such field and whether the object sets it.
type unserved struct {
	name string
	set  bool
	what string
}

func unservedInClaim(spec *v1alpha1.SandboxClaimSpec) []unserved {
	return []unserved{
		{"envVars", len(spec.EnvVars) > 0, "environment variables for the runtime"},
		{"additionalPodMetadata", spec.AdditionalPodMetadata != nil, "metadata for the pod alone; use labels and annotations"},
		{"inplaceUpdate", spec.InplaceUpdate != nil, "changing claimed sandboxes in place"},
		{"dynamicVolumesMount", len(spec.DynamicVolumesMount) > 0, "mounting volumes into running sandboxes"},
		{"lifecycle", spec.Lifecycle != nil, "the lifecycle of a claim; use shutdownTime and ttlAfterCompleted"},
	}
}

func unservedInSandbox(spec *v1alpha1.SandboxSpec) []unserved {
	return []unserved{
		{"lifecycle", spec.Lifecycle != nil, "upgrading sandboxes"},
		{"upgradePolicy", spec.UpgradePolicy != nil, "upgrading sandboxes"},
	}
}

func refuseUnserved(fields []unserved, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range fields {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name), unservedMessage(f.what)))
		}
	}
	return errs
}

func unservedMessage(what string) string {
	return "not supported by this version of Sandlot yet: " + what
}
