// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxShown is how much of a bad value an error quotes.
const maxShown = 100

var (
	unmarshaler  = reflect.TypeFor[json.Unmarshaler]()
	rawExtension = reflect.TypeFor[runtime.RawExtension]()
)

// findUndecodable returns the first value in js that cannot be decoded into the
// field of obj's type that it is for, or nil. Fields that the type does not
// have are passed over, as the decoder does.
//
// For example {"spec":{"claimTimeout":"abc"}} gives
//
//	spec.claimTimeout: Invalid value: "abc": time: invalid duration "abc"
func findUndecodable(js []byte, obj any) *field.Error {
	return undecodable(js, reflect.TypeOf(obj), nil)
}

func undecodable(js json.RawMessage, t reflect.Type, path *field.Path) *field.Error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if string(js) == "null" {
		return nil // leaves the field empty or, in a merge patch, removes it
	}
	if t == rawExtension && !isObject(js) {
		return wrongType(js, "an object", path) // it would take any JSON
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return undecodableLeaf(js, t, path)
	}
	switch {
	case t.Kind() == reflect.Struct:
		values, ok := decodeAs[map[string]json.RawMessage](js)
		if !ok && path == nil {
			return nil // the decoder has its own words for what is no object at all
		}
		if !ok {
			return wrongType(js, "an object", path)
		}
		return undecodableStruct(values, t, path)
	case t.Kind() == reflect.Map:
		values, ok := decodeAs[map[string]json.RawMessage](js)
		if !ok {
			return wrongType(js, "an object", path)
		}
		return undecodableMap(values, t, path)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8: // bytes are a string in JSON
		values, ok := decodeAs[[]json.RawMessage](js)
		if !ok {
			return wrongType(js, "a list", path)
		}
		return undecodableSlice(values, t, path)
	default:
		return undecodableLeaf(js, t, path)
	}
}

func decodeAs[T any](js json.RawMessage) (T, bool) {
	var values T
	err := json.Unmarshal(js, &values)
	return values, err == nil
}

// undecodableStruct goes through the fields in the order of the type. Embedded
// structs without a name of their own share the object of their parent.
func undecodableStruct(values map[string]json.RawMessage, t reflect.Type, path *field.Path) *field.Error {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		var err *field.Error
		if f.Anonymous && name == "" {
			err = undecodableStruct(values, f.Type, path)
		} else if value, ok := values[name]; ok && name != "-" {
			err = undecodable(value, f.Type, path.Child(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func undecodableMap(values map[string]json.RawMessage, t reflect.Type, path *field.Path) *field.Error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := undecodable(values[key], t.Elem(), path.Key(key)); err != nil {
			return err
		}
	}
	return nil
}

func undecodableSlice(values []json.RawMessage, t reflect.Type, path *field.Path) *field.Error {
	for i, value := range values {
		if err := undecodable(value, t.Elem(), path.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// isObject reports whether js is what every field of raw JSON in our types holds.
func isObject(js json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimLeft(js, " \t\r\n"), []byte("{"))
}

func undecodableLeaf(js json.RawMessage, t reflect.Type, path *field.Path) *field.Error {
	err := kjson.UnmarshalCaseSensitivePreserveInts(js, reflect.New(t).Interface())
	if err == nil {
		return nil
	}
	switch t {
	case duration:
		return wrongDuration(js, err, path)
	case timestamp:
		return wrongTime(js, err, path)
	}
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return wrongType(js, describeType(typeErr.Type), path)
	}
	return field.Invalid(path, shown(js), err.Error())
}

func wrongType(js json.RawMessage, want string, path *field.Path) *field.Error {
	value := shown(js)
	if holdsSecrets(path) {
		value = field.OmitValueType{}
	}
	return field.Invalid(path, value, fmt.Sprintf("must be %s", want))
}

// holdsSecrets reports whether a field is, or is in, the environment of a claim, which is
// never quoted: an error ends up in logs, and a password may be a number.
func holdsSecrets(path *field.Path) bool {
	rest, ok := strings.CutPrefix(path.String(), "spec.env")
	rest = strings.TrimPrefix(rest, "Vars")
	return ok && (rest == "" || rest[0] == '[')
}

func describeType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int32, reflect.Int64, reflect.Int:
		return fmt.Sprintf("an integer of at most %d bits", t.Bits())
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	default:
		return "of type " + t.String()
	}
}

// shown is what an error quotes of a value: a string without its quotes, which
// the error puts around it again, and other JSON as it is.
func shown(js json.RawMessage) any {
	var s string
	isString := json.Unmarshal(js, &s) == nil
	if !isString {
		s = string(js)
	}
	s = cut(s, maxShown)
	if isString {
		return s
	}
	return unquoted(s)
}

// unquoted is printed by field errors as it is.
type unquoted string

func (u unquoted) String() string { return string(u) }

// checkApplied returns an error that names the fields of data that the kind does not have, or
// the first value that server-side apply cannot merge. Like checkFields it returns nil for data
// that it cannot judge.
func checkApplied(scheme *runtime.Scheme, data []byte, kind schema.GroupVersionKind) error {
	obj, js := newOf(scheme, data, kind, false)
	if obj == nil {
		return nil
	}
	unknown, err := kjson.UnmarshalStrict(js, obj, kjson.DisallowUnknownFields)
	if err != nil {
		return nil //nolint:nilerr // the caller has its own error for that
	}
	if unknown = append(unknown, unknownInTemplates(obj, kind.Group)...); len(unknown) > 0 {
		return errors.Join(unknown...)
	}
	if err := checkMetadata(obj); err != nil {
		return err
	}
	return checkTemplates(obj)
}

// checkFields decodes data, JSON or YAML, field by field and returns an error
// that names the first field of it that cannot be decoded. It returns nil if
// every field can, and also where it cannot tell: for kinds of other groups,
// and if data is not even JSON or YAML. isJSON means that data is decoded as JSON alone.
func checkFields(scheme *runtime.Scheme, data []byte, kind schema.GroupVersionKind, isJSON bool) error {
	obj, js := newOf(scheme, data, kind, isJSON)
	if obj == nil {
		return nil
	}
	if fieldErr := findUndecodable(js, obj); fieldErr != nil {
		return errors.New(fieldErr.Error())
	}
	return nil
}

// isOurs reports whether the kinds of a group are ours.
func isOurs(group string) bool {
	return slices.ContainsFunc(v1alpha1.ServedVersions, func(served schema.GroupVersion) bool { return served.Group == group })
}

// newOf returns an empty object of a kind of our groups, and data as JSON; or nil,
// where the caller has its own error.
func newOf(scheme *runtime.Scheme, data []byte, kind schema.GroupVersionKind, isJSON bool) (runtime.Object, json.RawMessage) {
	if !isOurs(kind.Group) {
		return nil, nil
	}
	obj, err := scheme.New(kind)
	if err != nil {
		return nil, nil
	}
	if isJSON {
		return obj, data
	}
	js, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, nil
	}
	return obj, js
}
