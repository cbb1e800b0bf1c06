// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// checkUnknown returns an error that names the fields of data that the kind does
// not have. Like checkFields it returns nil where it cannot tell.
func checkUnknown(scheme *runtime.Scheme, data []byte, kind schema.GroupVersionKind) error {
	obj, js := newOf(scheme, data, kind)
	if obj == nil {
		return nil
	}
	unknown, err := kjson.UnmarshalStrict(js, obj, kjson.DisallowUnknownFields)
	if err != nil {
		return nil //nolint:nilerr // the caller has its own error for that
	}
	return errors.Join(unknown...)
}

// checkFields decodes data, JSON or YAML, field by field and returns an error
// that names the first field of it that cannot be decoded. It returns nil if
// every field can, and also where it cannot tell: for kinds of other groups,
// and if data is not even JSON or YAML.
func checkFields(scheme *runtime.Scheme, data []byte, kind schema.GroupVersionKind) error {
	obj, js := newOf(scheme, data, kind)
	if obj == nil {
		return nil
	}
	if fieldErr := findUndecodable(js, obj); fieldErr != nil {
		return errors.New(fieldErr.Error())
	}
	return nil
}

// newOf returns an empty object of a kind of our group, and data as JSON; or nil,
// where the caller has its own error.
func newOf(scheme *runtime.Scheme, data []byte, kind schema.GroupVersionKind) (runtime.Object, json.RawMessage) {
	if kind.Group != v1alpha1.GroupName {
		return nil, nil
	}
	obj, err := scheme.New(kind)
	if err != nil {
		return nil, nil
	}
	js, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, nil
	}
	return obj, js
}
