// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"fmt"
	"reflect"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// storedDecoder decodes what this server has stored, in a quarter of the time that the
// decoder behind it takes. That reads an object twice, first to know what it is; but what
// the server stores begins with that. A start decodes every object there is.
//
// What does not begin so, or does not decode, is for the decoder behind.
type storedDecoder struct {
	runtime.Decoder
	kinds []storedKind
}

type storedKind struct {
	schema.GroupVersionKind
	// begin is how each stored object of the kind begins.
	begin []byte
	// object is the struct type of the kind.
	object reflect.Type
}

// NewStoredDecoder returns a decoder of objects of these types, as they are encoded in a
// version of the scheme. It leaves everything else to a decoder behind it, and the meaning
// of JSON is the same for both: names have their case, fields that are not known are passed
// over. Like a serializer it neither converts nor sets defaults.
func NewStoredDecoder(behind runtime.Decoder, scheme *runtime.Scheme, version schema.GroupVersion, types ...runtime.Object) (runtime.Decoder, error) {
	d := storedDecoder{Decoder: behind}
	for _, object := range types {
		of := reflect.TypeOf(object).Elem()
		gvks, _, err := scheme.ObjectKinds(object)
		if err != nil {
			return nil, fmt.Errorf("decoder of stored objects: %w", err)
		}
		for _, gvk := range gvks {
			if gvk.GroupVersion() == version {
				begin := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, gvk.Kind, version)
				d.kinds = append(d.kinds, storedKind{gvk, begin, of})
			}
		}
	}
	if len(d.kinds) != len(types) {
		return nil, fmt.Errorf("decoder of stored objects: %s has %d of the %d types", version, len(d.kinds), len(types))
	}
	return d, nil
}

// As etcd may have it from the encoder of encoding/json, which does not look at either.
var asEncoded = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// Decode implements runtime.Decoder.
func (d storedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	for i := range d.kinds {
		kind := &d.kinds[i]
		if !bytes.HasPrefix(data, kind.begin) {
			continue
		}
		value := reflect.New(kind.object)
		object, ok := reflect.TypeAssert[runtime.Object](value)
		if !ok || json.Unmarshal(data, object, asEncoded) != nil {
			break
		}
		gvk := kind.GroupVersionKind
		if into != nil && reflect.TypeOf(into) == value.Type() {
			reflect.ValueOf(into).Elem().Set(value.Elem())
			object = into
		}
		return object, &gvk, nil
	}
	return d.Decoder.Decode(data, defaults, into)
}
