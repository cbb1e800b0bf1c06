// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// fieldNamingSerializer is a serializer whose decoders name the field that they
// could not decode. The errors of encoding/json often do not: those of types
// that decode themselves, like durations and times, have no path.
type fieldNamingSerializer struct {
	runtime.NegotiatedSerializer
}

func (s fieldNamingSerializer) DecoderToVersion(decoder runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return fieldNamingDecoder{s.NegotiatedSerializer.DecoderToVersion(decoder, gv)}
}

type fieldNamingDecoder struct {
	runtime.Decoder
}

// Decode costs nothing more than the plain one as long as there is no error.
func (d fieldNamingDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err == nil || runtime.IsStrictDecodingError(err) {
		if versionErr := checkResourceVersion(obj); versionErr != nil {
			return obj, gvk, versionErr
		}
		return obj, gvk, err // strict errors name their fields, and may be mere warnings
	}
	kind := gvk
	if kind == nil {
		kind = defaults
	}
	if kind != nil {
		if fieldErr := checkFields(data, *kind); fieldErr != nil {
			err = fieldErr
		}
	}
	return obj, gvk, err
}

// checkResourceVersion refuses what the store could not read as a version, which
// would come back as 500.
func checkResourceVersion(obj runtime.Object) error {
	object, ok := obj.(metav1.Object)
	if !ok || object.GetResourceVersion() == "" {
		return nil
	}
	version := object.GetResourceVersion()
	if _, err := (storage.APIObjectVersioner{}).ParseResourceVersion(version); err != nil {
		path := field.NewPath("metadata", "resourceVersion")
		return errors.New(field.Invalid(path, version, "must be as the server sent it").Error())
	}
	return nil
}

// checkUnknown returns an error that names the fields of data that the kind does
// not have. Like checkFields it returns nil where it cannot tell.
func checkUnknown(data []byte, kind schema.GroupVersionKind) error {
	if kind.Group != v1alpha1.GroupName {
		return nil
	}
	obj, err := scheme.New(kind)
	if err != nil {
		return nil //nolint:nilerr // not one of ours: the caller has its own error for that
	}
	js, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil //nolint:nilerr // the caller has its own error for that
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
func checkFields(data []byte, kind schema.GroupVersionKind) error {
	if kind.Group != v1alpha1.GroupName {
		return nil
	}
	obj, err := scheme.New(kind)
	if err != nil {
		return nil //nolint:nilerr // not one of ours: the caller has its own error for that
	}
	js, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil //nolint:nilerr // the caller has its own error for that
	}
	if fieldErr := findUndecodable(js, obj); fieldErr != nil {
		return errors.New(fieldErr.Error())
	}
	return nil
}
