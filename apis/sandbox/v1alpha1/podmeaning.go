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
// typed client writes all that its types cannot leave out, so that these are the same:
//
//	{"spec":{"containers":[{"name":"a"}]}}
//	{"metadata":{"creationTimestamp":null},"spec":{"containers":[{"name":"a","resources":{}}]}}
//
// Fields that PodTemplateSpec lacks are compared as JSON.
func SamePodTemplate(a, b *runtime.RawExtension) bool { return sameMeaning(a, b, podTemplateType) }

// SameVolumeClaimTemplate reports whether two elements of volumeClaimTemplates decode to the
// same PersistentVolumeClaim.
func SameVolumeClaimTemplate(a, b *runtime.RawExtension) bool {
	return sameMeaning(a, b, volumeClaimType)
}

// PodTemplateMeaning returns what a pod template says, as JSON values: equal for all ways to
// write it. It is for comparing, and not a template. Errors are those of decoding JSON.
func PodTemplateMeaning(raw *runtime.RawExtension) (any, error) {
	return rawMeaning(raw, podTemplateType)
}

// VolumeClaimTemplateMeaning is PodTemplateMeaning of an element of volumeClaimTemplates.
func VolumeClaimTemplateMeaning(raw *runtime.RawExtension) (any, error) {
	return rawMeaning(raw, volumeClaimType)
}

func sameMeaning(a, b *runtime.RawExtension, t reflect.Type) bool {
	if a == nil || b == nil {
		return a == b
	}
	if len(a.Raw) > 0 && bytes.Equal(a.Raw, b.Raw) {
		return true
	}
	meaningA, errA := rawMeaning(a, t)
	meaningB, errB := rawMeaning(b, t)
	return errA == nil && errB == nil && reflect.DeepEqual(meaningA, meaningB)
}

func rawMeaning(raw *runtime.RawExtension, t reflect.Type) (any, error) {
	data, err := raw.MarshalJSON() // a client may have sent CBOR
	if err != nil {
		return nil, err
	}
	value, err := decodeNumbers(data)
	if err != nil {
		return nil, err
	}
	says, _ := meaningOf(value, t)
	return says, nil
}

// decodeNumbers decodes JSON with numbers as they are written.
func decodeNumbers(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return value, err
}

// meaningOf returns a value as its type has it, and whether that is the zero value, which is
// the same as none. What does not decode stays as it is.
func meaningOf(value any, t reflect.Type) (any, bool) {
	if t.Kind() == reflect.Pointer {
		if value == nil {
			return nil, true
		}
		says, _ := meaningOf(value, t.Elem())
		return says, false // a pointer to nothing says that there is one
	}
	switch {
	case rawFields(t) != nil:
		return meaningOfStruct(value, t)
	case t.Kind() == reflect.Map:
		return meaningOfMap(value, t)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return meaningOfSlice(value, t)
	}
	return meaningOfLeaf(value, t)
}

func meaningOfStruct(value any, t reflect.Type) (any, bool) {
	object, ok := value.(map[string]any)
	if !ok && value != nil {
		return value, false
	}
	fields, says := rawFields(t), map[string]any{}
	for name, part := range object {
		field, known := fields[name]
		if !known {
			says[name] = part
			continue
		}
		if field.emptyMeansAbsent && part == "" {
			continue
		}
		if part, absent := meaningOf(part, field.typ); !absent {
			says[name] = part
		}
	}
	return says, len(says) == 0
}

// meaningOfMap keeps all keys: that there is one is said of each.
func meaningOfMap(value any, t reflect.Type) (any, bool) {
	object, ok := value.(map[string]any)
	if !ok && value != nil {
		return value, false
	}
	says := make(map[string]any, len(object))
	for key, element := range object {
		says[key], _ = meaningOf(element, t.Elem())
	}
	return says, len(says) == 0
}

func meaningOfSlice(value any, t reflect.Type) (any, bool) {
	list, ok := value.([]any)
	if !ok && value != nil {
		return value, false
	}
	says := make([]any, len(list))
	for i, element := range list {
		says[i], _ = meaningOf(element, t.Elem())
	}
	return says, len(says) == 0
}

// meaningOfLeaf decodes a value and encodes it again.
func meaningOfLeaf(value any, t reflect.Type) (any, bool) {
	if t.Kind() == reflect.String { // most are, and encode as they are
		text, ok := value.(string)
		return orEmpty(value, ok), value == nil || ok && text == ""
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
		quantity.Format = resource.DecimalExponent // 1Gi and 1073741824 are one quantity
		number, exponent := quantity.CanonicalizeBytes(nil)
		return string(number) + string(exponent), absent
	}
	if encoded, err = json.Marshal(decoded.Interface()); err != nil {
		return value, false
	}
	says, err := decodeNumbers(encoded)
	if err != nil {
		return value, false
	}
	return says, absent
}

func orEmpty(value any, isString bool) any {
	if value == nil && !isString {
		return ""
	}
	return value
}
