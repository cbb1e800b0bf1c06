// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
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

// Fields of the API whose behaviour is not there yet. An object that sets one is
// refused, because to accept and ignore it would be a promise not kept. To serve
// a field, take its line away here, and add the checks of its value.

// unserved is one such field. set reports whether the object sets it.
type unserved struct {
	name string
	set  bool
	what string
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

func sameJSON(a, b runtime.RawExtension) bool {
	return bytes.Equal(a.Raw, b.Raw) || reflect.DeepEqual(decodeRaw(&a), decodeRaw(&b))
}

// decodeRaw reads JSON with numbers as they are written; nil is what cannot be
// read.
func decodeRaw(raw *runtime.RawExtension) any {
	data, err := raw.MarshalJSON()
	if err != nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil
	}
	return value
}

// validateRetention checks the annotation that says how long a paused sandbox is
// kept. OpenKruise Agents ignores values that it cannot read.
func validateRetention(annotations map[string]string, path *field.Path) field.ErrorList {
	const key = v1alpha1.AnnotationReservePausedSandboxDuration
	value, ok := annotations[key]
	if !ok {
		return nil
	}
	if _, err := v1alpha1.PausedRetention(value); err != nil {
		return field.ErrorList{field.Invalid(path.Key(key), value, err.Error())}
	}
	return nil
}
