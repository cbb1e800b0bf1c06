// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// SamePodTemplate reports whether two template fields decode to the same pod template. A
// typed client also sends the fields that its Go types cannot omit, so these two are the same:
//
//	{"spec":{"containers":[{"name":"a"}]}}
//	{"metadata":{"creationTimestamp":null},"spec":{"containers":[{"name":"a","resources":{}}]}}
//
// Fields that PodTemplateSpec lacks are compared as JSON.
func SamePodTemplate(a, b *runtime.RawExtension) bool { return equalNormalized(a, b, podTemplateType) }

// SameVolumeClaimTemplate reports whether two elements of volumeClaimTemplates decode to the
// same PersistentVolumeClaim.
func SameVolumeClaimTemplate(a, b *runtime.RawExtension) bool {
	return equalNormalized(a, b, volumeClaimType)
}

// NormalizedPodTemplate returns a pod template in a normalized form, as decoded JSON: two
// templates that decode to the same have the same form. It is for comparisons, and not a valid
// template. Errors are those of decoding JSON.
func NormalizedPodTemplate(raw *runtime.RawExtension) (any, error) {
	return normalizeRaw(raw, podTemplateType)
}

// NormalizedVolumeClaimTemplate is NormalizedPodTemplate for an element of volumeClaimTemplates.
func NormalizedVolumeClaimTemplate(raw *runtime.RawExtension) (any, error) {
	return normalizeRaw(raw, volumeClaimType)
}

func equalNormalized(a, b *runtime.RawExtension, t reflect.Type) bool {
	if a == nil || b == nil {
		return a == b
	}
	if len(a.Raw) > 0 && bytes.Equal(a.Raw, b.Raw) {
		return true
	}
	normalizedA, errA := normalizeRaw(a, t)
	normalizedB, errB := normalizeRaw(b, t)
	return errA == nil && errB == nil && reflect.DeepEqual(normalizedA, normalizedB)
}

func normalizeRaw(raw *runtime.RawExtension, t reflect.Type) (any, error) {
	data, err := raw.MarshalJSON()
	if err != nil {
		return nil, err
	}
	value, err := decodeNumbers(data)
	if err != nil {
		return nil, err
	}
	normalized, _ := normalize(value, t)
	return normalized, nil
}

// decodeNumbers decodes JSON, and keeps numbers as they are written.
func decodeNumbers(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return value, err
}

// normalize returns a value as its Go type encodes it, and reports whether that is the
// zero value, which is the same as an absent field. A value that does not decode is
// returned as it is.
func normalize(value any, t reflect.Type) (normalized any, absent bool) {
	if t.Kind() == reflect.Pointer {
		if value == nil {
			return nil, true
		}
		normalized, _ := normalize(value, t.Elem())
		return normalized, false // a pointer to a zero value is not the same as nil
	}
	switch {
	case rawFields(t) != nil:
		return normalizeStruct(value, t)
	case t.Kind() == reflect.Map:
		return normalizeMap(value, t)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return normalizeSlice(value, t)
	}
	return normalizeLeaf(value, t)
}

func normalizeStruct(value any, t reflect.Type) (any, bool) {
	object, ok := value.(map[string]any)
	if !ok && value != nil {
		return value, false
	}
	fields, normalized := rawFields(t), map[string]any{}
	for name, part := range object {
		field, known := fields[name]
		if !known {
			normalized[name] = part
			continue
		}
		if field.emptyMeansAbsent && part == "" {
			continue
		}
		if part, absent := normalize(part, field.typ); !absent {
			normalized[name] = part
		}
	}
	return normalized, len(normalized) == 0
}

// normalizeMap keeps keys with a zero value too: a key counts even if its value does not.
func normalizeMap(value any, t reflect.Type) (any, bool) {
	object, ok := value.(map[string]any)
	if !ok && value != nil {
		return value, false
	}
	normalized := make(map[string]any, len(object))
	for key, element := range object {
		normalized[key], _ = normalize(element, t.Elem())
	}
	return normalized, len(normalized) == 0
}

func normalizeSlice(value any, t reflect.Type) (any, bool) {
	list, ok := value.([]any)
	if !ok && value != nil {
		return value, false
	}
	normalized := make([]any, len(list))
	for i, element := range list {
		normalized[i], _ = normalize(element, t.Elem())
	}
	return normalized, len(normalized) == 0
}

// normalizeLeaf decodes a value and encodes it again.
func normalizeLeaf(value any, t reflect.Type) (any, bool) {
	if t.Kind() == reflect.String { // the most common type; it encodes to itself
		if value == nil {
			value = ""
		}
		return value, value == ""
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return value, false
	}
	decoded := reflect.New(t)
	if err := utiljson.Unmarshal(encoded, decoded.Interface()); err != nil {
		return value, false
	}
	absent := decoded.Elem().IsZero()
	if zeroer, ok := reflect.TypeAssert[interface{ IsZero() bool }](decoded); ok {
		absent = zeroer.IsZero()
	}
	if quantity, ok := reflect.TypeAssert[*resource.Quantity](decoded); ok {
		quantity.Format = resource.DecimalExponent // 1Gi and 1073741824 are the same quantity
		number, exponent := quantity.CanonicalizeBytes(nil)
		return string(number) + string(exponent), absent
	}
	if encoded, err = json.Marshal(decoded.Interface()); err != nil {
		return value, false
	}
	normalized, err := decodeNumbers(encoded)
	if err != nil {
		return value, false
	}
	return normalized, absent
}
