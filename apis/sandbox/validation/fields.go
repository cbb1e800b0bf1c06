// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	metadataPath = field.NewPath("metadata")
	specPath     = field.NewPath("spec")
	statusPath   = field.NewPath("status")
)

// labelValueName is the rule for the names of claims and sets. Such a name is
// also the value of a label on sandboxes, which may be shorter than a name. A
// generateName (prefix) is cut to fit and needs no limit.
func labelValueName(name string, prefix bool) []string {
	errs := apivalidation.NameIsDNSSubdomain(name, prefix)
	if !prefix && len(name) > validation.LabelValueMaxLength {
		errs = append(errs, fmt.Sprintf("must be no more than %d characters, because it is also the value of a label on sandboxes",
			validation.LabelValueMaxLength))
	}
	return errs
}

// validateReference checks the name of another object in the namespace.
func validateReference(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(name) > validation.DNS1123SubdomainMaxLength {
		return field.ErrorList{field.TooLong(path, "", validation.DNS1123SubdomainMaxLength)} // without quoting it
	}
	var errs field.ErrorList
	for _, msg := range apivalidation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path, name, msg))
	}
	return errs
}

func validateEnum[T ~string](value T, allowed []T, path *field.Path) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func validateCount(value int64, path *field.Path) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(value, path)
}
