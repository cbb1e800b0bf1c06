// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Pod templates are stored as raw JSON. The functions of this file, podnormalize.go and
// podunknown.go walk that JSON along the Go types of Kubernetes, so that they know the type of
// each field and still see the fields that the Go types lack.

var (
	podTemplateType = reflect.TypeFor[corev1.PodTemplateSpec]()
	volumeClaimType = reflect.TypeFor[corev1.PersistentVolumeClaim]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

// rawField is a field of a struct type, for use with its value in decoded JSON.
// +k8s:openapi-gen=false
type rawField struct {
	typ reflect.Type
	// emptyMeansAbsent is set for optional strings. Charts render them as "", but the API
	// server refuses most of them if they are empty.
	emptyMeansAbsent bool
}

// emptyHasMeaning are the optional strings that differ when empty from when absent: an empty
// storageClassName asks for no class, an absent one for the default class.
var emptyHasMeaning = map[reflect.Type]string{
	reflect.TypeFor[corev1.PersistentVolumeClaimSpec](): "storageClassName",
}

// fieldsByType caches what rawFields returns, by struct type.
var fieldsByType sync.Map

// rawFields returns the fields of a struct type by their name in JSON. It returns nil for a
// type that is not a struct or has its own UnmarshalJSON, such as a quantity or a time.
func rawFields(t reflect.Type) map[string]rawField {
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(jsonUnmarshaler) {
		return nil
	}
	if known, ok := fieldsByType.Load(t); ok {
		return known.(map[string]rawField)
	}
	fields := map[string]rawField{}
	addRawFields(fields, t)
	fieldsByType.Store(t, fields)
	return fields
}

func addRawFields(to map[string]rawField, t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case field.Anonymous && name == "":
			addRawFields(to, field.Type)
		case name != "":
			isString := field.Type.Kind() == reflect.Pointer && field.Type.Elem().Kind() == reflect.String
			to[name] = rawField{typ: field.Type, emptyMeansAbsent: isString && emptyHasMeaning[t] != name}
		}
	}
}

// DropEmptyStrings removes empty optional strings from a pod template in decoded JSON. The
// API server refuses a pod that has one, such as an empty runtimeClassName.
func DropEmptyStrings(template map[string]any) { dropEmptyStrings(template, podTemplateType) }

// DropEmptyClaimStrings removes empty optional strings from a volume claim template in
// decoded JSON. An empty storageClassName stays: it asks for no class.
func DropEmptyClaimStrings(claim map[string]any) { dropEmptyStrings(claim, volumeClaimType) }

func dropEmptyStrings(value any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case map[string]any:
		if t.Kind() == reflect.Map {
			for _, element := range value {
				dropEmptyStrings(element, t.Elem())
			}
			return
		}
		fields := rawFields(t)
		for name, part := range value {
			field, known := fields[name]
			switch {
			case !known:
			case field.emptyMeansAbsent && part == "":
				delete(value, name)
			default:
				dropEmptyStrings(part, field.typ)
			}
		}
	case []any:
		if t.Kind() == reflect.Slice {
			for _, element := range value {
				dropEmptyStrings(element, t.Elem())
			}
		}
	}
}
