// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decoding refuses bodies of requests that do not decode, or not as their
// client means them, by naming the field.
package decoding

import (
	"cmp"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage"
)

// NewSerializer returns a serializer of the kinds of a scheme, which offers neither protobuf nor
// CBOR, which encodes large lists one item at a time if the given one does so for JSON, whose buffers
// do not stay as large as the largest event of a watch, and whose decoders name the field that they
// could not decode. The errors of encoding/json often do not: those of types that decode themselves,
// like durations and times, have no path.
func NewSerializer(s runtime.NegotiatedSerializer, scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	text := withoutBinary(s)
	streamLists(text.mediaTypes)
	freeBuffers(text.mediaTypes)
	for i := range text.mediaTypes {
		if strict := text.mediaTypes[i].StrictSerializer; strict != nil {
			text.mediaTypes[i].StrictSerializer = strictSerializer{strict}
		}
	}
	return fieldNamingSerializer{text, scheme}
}

type fieldNamingSerializer struct {
	textSerializer
	scheme *runtime.Scheme
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (s fieldNamingSerializer) DecoderToVersion(decoder runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	isJSON := slices.ContainsFunc(s.mediaTypes, func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeJSON && (decoder == info.Serializer || decoder == info.StrictSerializer)
	})
	return fieldNamingDecoder{s.NegotiatedSerializer.DecoderToVersion(decoder, gv), s.scheme, isJSON}
}

type fieldNamingDecoder struct {
	runtime.Decoder
	scheme *runtime.Scheme
	// isJSON means that data is decoded as JSON alone.
	isJSON bool
}

// Decode reads the data once more than the plain one as long as there is no error.
func (d fieldNamingDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if !d.isJSON || len(data) > shortBody || isSuspicious(data) {
		if err := d.check(data, defaults, into); err != nil {
			return nil, defaults, bounded(err)
		}
	}
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err == nil || runtime.IsStrictDecodingError(err) {
		return obj, gvk, bounded(cmp.Or(checkMetadata(obj), err)) // strict errors name their fields, and may be mere warnings
	}
	kind := gvk
	if kind == nil {
		kind = defaults
	}
	if kind != nil {
		if fieldErr := checkFields(d.scheme, data, *kind); fieldErr != nil {
			err = fieldErr
		}
	}
	return obj, gvk, bounded(err)
}

// check refuses data with too many elements or with values that do not decode as their client
// means them. The data of a patch is what its object becomes by it.
func (d fieldNamingDecoder) check(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) error {
	if err := checkObject(data); err != nil {
		return err
	}
	if d.isJSON && !isSuspicious(data) {
		return nil
	}
	return checkValues(d.scheme, data, d.kindsOf(defaults, into)...)
}

// kindsOf returns the kinds that data may be decoded as which does not say its kind.
func (d fieldNamingDecoder) kindsOf(defaults *schema.GroupVersionKind, into runtime.Object) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	if into != nil {
		kinds, _, _ = d.scheme.ObjectKinds(into) // none if it is not registered
	}
	if defaults != nil {
		kinds = append(slices.Clone(kinds), *defaults)
	}
	return kinds
}

// checkMetadata refuses what the store could not read as a version, which would come back as 500,
// and drops too large managedFields.
func checkMetadata(obj runtime.Object) error {
	if object, ok := obj.(metav1.Object); ok && (object.GetResourceVersion() != "" || len(object.GetManagedFields()) > 0) {
		dropManagedFields(object)
		return checkResourceVersion(object.GetResourceVersion())
	}
	return nil
}

func checkResourceVersion(version string) error {
	if _, err := (storage.APIObjectVersioner{}).ParseResourceVersion(version); err != nil {
		path := field.NewPath("metadata", "resourceVersion")
		return errors.New(field.Invalid(path, version, "must be as the server sent it").Error())
	}
	return nil
}

// textSerializer is a serializer that offers neither protobuf nor CBOR.
//
// Our kinds have no protobuf form. A client that prefers it and takes JSON as
// well, as the namespace controller does when it deletes everything, would be
// answered with an error after the deed, for ever: its namespace would never go.
// The feature gate CBORServingAndStorage would add CBOR, at which checkValues does not
// look. A client that sends CBOR takes 415 as a request to send JSON.
type textSerializer struct {
	runtime.NegotiatedSerializer
	mediaTypes []runtime.SerializerInfo
}

func withoutBinary(s runtime.NegotiatedSerializer) textSerializer {
	return textSerializer{s, slices.DeleteFunc(slices.Clone(s.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf || info.MediaType == runtime.ContentTypeCBOR
	})}
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s textSerializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.mediaTypes }
