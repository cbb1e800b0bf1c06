// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decoding refuses bodies of requests that do not decode, or not as their
// client means them, by naming the field.
package decoding

import (
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage"
)

// NewSerializer returns a serializer of the kinds of a scheme, which does not offer
// protobuf, which encodes large lists one item at a time if the given one does so for JSON, and
// whose decoders name the field that they could not decode. The errors
// of encoding/json often do not: those of types that decode themselves, like
// durations and times, have no path.
func NewSerializer(s runtime.NegotiatedSerializer, scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	text := withoutProtobuf(s)
	streamLists(text.mediaTypes)
	for i := range text.mediaTypes {
		if strict := text.mediaTypes[i].StrictSerializer; strict != nil {
			text.mediaTypes[i].StrictSerializer = strictSerializer{strict}
		}
	}
	return fieldNamingSerializer{text, scheme}
}

type fieldNamingSerializer struct {
	runtime.NegotiatedSerializer
	scheme *runtime.Scheme
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (s fieldNamingSerializer) DecoderToVersion(decoder runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return fieldNamingDecoder{s.NegotiatedSerializer.DecoderToVersion(decoder, gv), s.scheme}
}

type fieldNamingDecoder struct {
	runtime.Decoder
	scheme *runtime.Scheme
}

// Decode reads the data once more than the plain one as long as there is no error.
func (d fieldNamingDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	meant := d.kindOf(defaults, into)
	if err := checkQuantities(d.scheme, data, meant); err != nil {
		return nil, meant, bounded(err)
	}
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err == nil || runtime.IsStrictDecodingError(err) {
		if versionErr := checkResourceVersion(obj); versionErr != nil {
			return obj, gvk, bounded(versionErr)
		}
		return obj, gvk, bounded(err) // strict errors name their fields, and may be mere warnings
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

// kindOf returns the kind of what is decoded, if the data does not say it; nil if that is unknown.
func (d fieldNamingDecoder) kindOf(defaults *schema.GroupVersionKind, into runtime.Object) *schema.GroupVersionKind {
	if defaults != nil || into == nil {
		return defaults
	}
	kinds, _, err := d.scheme.ObjectKinds(into)
	if err != nil {
		return nil
	}
	return &kinds[0]
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

// textSerializer is a serializer that does not offer protobuf.
//
// Our kinds have no protobuf form. A client that prefers it and takes JSON as
// well, as the namespace controller does when it deletes everything, would be
// answered with an error after the deed, for ever: its namespace would never go.
type textSerializer struct {
	runtime.NegotiatedSerializer
	mediaTypes []runtime.SerializerInfo
}

func withoutProtobuf(s runtime.NegotiatedSerializer) textSerializer {
	return textSerializer{s, slices.DeleteFunc(slices.Clone(s.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})}
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s textSerializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.mediaTypes }
