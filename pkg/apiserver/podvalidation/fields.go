// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// errorTypes are those that a cluster may name as the type of a cause. Others
// would make field.Error panic.
var errorTypes = []field.ErrorType{
	field.ErrorTypeNotFound, field.ErrorTypeRequired, field.ErrorTypeDuplicate, field.ErrorTypeInvalid,
	field.ErrorTypeNotSupported, field.ErrorTypeForbidden, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
	field.ErrorTypeTypeInvalid,
}

// under returns the causes of an invalid pod as errors of the template at path that
// the pod is made from.
//
//	spec.containers[0].image -> spec.template.spec.containers[0].image
func under(path *field.Path, causes []metav1.StatusCause) field.ErrorList {
	var errs field.ErrorList
	for _, cause := range causes {
		kind := field.ErrorType(cause.Type)
		if !slices.Contains(errorTypes, kind) {
			kind = field.ErrorTypeInvalid
		}
		errs = append(errs, &field.Error{
			Type:     kind,
			Field:    path.String() + "." + cause.Field,
			BadValue: field.OmitValueType{}, // the message quotes it
			Detail:   strings.TrimPrefix(cause.Message, kind.String()+": "),
		})
	}
	return errs
}

// moved returns errors about what is at one path as errors about another one.
func moved(errs field.ErrorList, from, to *field.Path) field.ErrorList {
	out := make(field.ErrorList, 0, len(errs))
	for _, err := range errs {
		there := *err
		there.Field = to.String() + strings.TrimPrefix(err.Field, from.String())
		out = append(out, &there)
	}
	return out
}

// about prefixes warnings with the path that they are about.
func about(path *field.Path, texts []string) []string {
	warnings := make([]string, 0, len(texts))
	for _, text := range texts {
		warnings = append(warnings, fmt.Sprintf("%s: %s", path, text))
	}
	return warnings
}
