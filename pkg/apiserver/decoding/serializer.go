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

// NewSerializer returns a serializer of the kinds of a scheme, which encodes large lists one item at a
// time if the given one does so for JSON, whose buffers do not stay as large as the largest event of a
// watch, and whose decoders name the field that they could not decode. The errors of encoding/json
// often do not: those of types that decode themselves, like durations and times, have no path.
//
// It offers no CBOR, which the feature gate CBORServingAndStorage would add: checkValues does not look
// at it. A client that sends CBOR takes 415 as a request to send JSON.
func NewSerializer(s runtime.NegotiatedSerializer, scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	return newSerializer(s, scheme, runtime.ContentTypeCBOR)
}

// NewTextSerializer returns a serializer as NewSerializer does, for kinds that have no protobuf form. A
// client that prefers it and takes JSON as well, as the namespace controller does when it deletes
// everything, would be answered with an error after the deed, for ever: its namespace would never go.
func NewTextSerializer(s runtime.NegotiatedSerializer, scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	return newSerializer(s, scheme, runtime.ContentTypeCBOR, runtime.ContentTypeProtobuf)
}

func newSerializer(s runtime.NegotiatedSerializer, scheme *runtime.Scheme, without ...string) runtime.NegotiatedSerializer {
	mediaTypes := slices.DeleteFunc(slices.Clone(s.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return slices.Contains(without, info.MediaType)
	})
	streamLists(mediaTypes)
	freeBuffers(mediaTypes)
	for i := range mediaTypes {
		if strict := mediaTypes[i].StrictSerializer; strict != nil {
			mediaTypes[i].StrictSerializer = strictSerializer{strict}
		}
	}
	return fieldNamingSerializer{s, mediaTypes, scheme}
}

type fieldNamingSerializer struct {
	runtime.NegotiatedSerializer
	mediaTypes []runtime.SerializerInfo
	scheme     *runtime.Scheme
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s fieldNamingSerializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.mediaTypes }

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (s fieldNamingSerializer) DecoderToVersion(decoder runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	mediaType := ""
	for _, info := range s.mediaTypes {
		if decoder == info.Serializer || decoder == info.StrictSerializer {
			mediaType = info.MediaType
		}
	}
	to := s.NegotiatedSerializer.DecoderToVersion(decoder, gv)
	if mediaType == runtime.ContentTypeProtobuf {
		return protobufDecoder{to, s.scheme}
	}
	return fieldNamingDecoder{to, s.scheme, mediaType == runtime.ContentTypeJSON}
}

// protobufDecoder refuses what causes harm later, before it is decoded.
type protobufDecoder struct {
	runtime.Decoder
	scheme *runtime.Scheme
}

// Decode implements runtime.Decoder.
func (d protobufDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	n, err := checkProtobuf(d.scheme, data, kindsOf(d.scheme, defaults, into)...)
	if err == nil {
		err = n.checkObject()
	}
	if err != nil {
		return nil, defaults, bounded(err)
	}
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err == nil {
		err = checkMetadata(obj)
	}
	return obj, gvk, bounded(err)
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
		if fieldErr := checkFields(d.scheme, data, *kind, d.isJSON); fieldErr != nil {
			err = fieldErr
		}
	}
	return obj, gvk, bounded(err)
}

// check refuses data with too many elements or with values that do not decode as their client
// means them. The data of a patch is what its object becomes by it.
func (d fieldNamingDecoder) check(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) error {
	if err := elementsOf(data).checkObject(); err != nil {
		return err
	}
	if d.isJSON && !isSuspicious(data) {
		return nil
	}
	return checkValues(d.scheme, data, kindsOf(d.scheme, defaults, into)...)
}

// kindsOf returns the kinds that data may be decoded as which does not say its kind.
func kindsOf(scheme *runtime.Scheme, defaults *schema.GroupVersionKind, into runtime.Object) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	if into != nil {
		kinds, _, _ = scheme.ObjectKinds(into) // none if it is not registered
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
