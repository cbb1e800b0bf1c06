// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package judge

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

// under makes the faults of a pod errors of the template that it is made from,
// which lies at path.
//
//	spec.containers[0].image -> spec.template.spec.containers[0].image
func under(path *field.Path, faults []metav1.StatusCause) field.ErrorList {
	var errs field.ErrorList
	for _, fault := range faults {
		kind := field.ErrorType(fault.Type)
		if !slices.Contains(errorTypes, kind) {
			kind = field.ErrorTypeInvalid
		}
		errs = append(errs, &field.Error{
			Type:     kind,
			Field:    path.String() + "." + fault.Field,
			BadValue: field.OmitValueType{}, // the message quotes it
			Detail:   strings.TrimPrefix(fault.Message, kind.String()+": "),
		})
	}
	return errs
}

// about says what field warnings are about.
func about(path *field.Path, texts []string) []string {
	warnings := make([]string, 0, len(texts))
	for _, text := range texts {
		warnings = append(warnings, fmt.Sprintf("%s: %s", path, text))
	}
	return warnings
}
