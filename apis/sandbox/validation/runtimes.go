// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxRuntimes is well above the handful of runtimes that exist. Lists without a
// bound end as an object too large to store, with an error that names no field.
const maxRuntimes = 64

// validateRuntimes checks the runtimes of a claim, which are accepted and have no
// effect, as with OpenKruise Agents.
func validateRuntimes(runtimes []v1alpha1.RuntimeConfig, path *field.Path) field.ErrorList {
	if len(runtimes) > maxRuntimes {
		return field.ErrorList{field.TooMany(path, len(runtimes), maxRuntimes)}
	}
	var errs field.ErrorList
	for i, runtime := range runtimes {
		if runtime.Name == "" {
			errs = append(errs, field.Required(path.Index(i).Child("name"), ""))
		}
	}
	return errs
}

// validateChangedRuntimes checks the runtimes that are put into pods. Whether the
// installation has them is seen when a pod is made: they may come later.
func validateChangedRuntimes(runtimes, old []v1alpha1.RuntimeConfig, path *field.Path) field.ErrorList {
	if slices.Equal(runtimes, old) {
		return nil
	}
	path = path.Child("runtimes")
	if errs := validateRuntimes(runtimes, path); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i, runtime := range runtimes {
		name := path.Index(i).Child("name")
		if slices.Contains(runtimes[:i], runtime) {
			errs = append(errs, field.Duplicate(name, runtime.Name))
			continue
		}
		for _, msg := range validation.IsDNS1123Label(runtime.Name) {
			errs = append(errs, field.Invalid(name, runtime.Name, msg))
		}
	}
	return errs
}
