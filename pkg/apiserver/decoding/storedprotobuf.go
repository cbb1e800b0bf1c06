// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// storedProtobufEncoder encodes what is stored as protobuf.
type storedProtobufEncoder struct{ runtime.Encoder }

// NewStoredProtobufEncoder returns an encoder of objects for etcd, from one of protobuf. It refuses what
// NewStoredEncoder refuses. Raw JSON has the text that an encoder of JSON gives it, so that two texts
// that differ in white space or escapes alone are stored as the same bytes, in either form.
func NewStoredProtobufEncoder(encoder runtime.Encoder) runtime.Encoder {
	return storedProtobufEncoder{encoder}
}

// Encode implements runtime.Encoder.
func (e storedProtobufEncoder) Encode(obj runtime.Object, w io.Writer) error {
	var encoded bytes.Buffer
	obj, err := withEncodedJSON(obj)
	if err == nil {
		err = e.Encoder.Encode(obj, &encoded)
	}
	if err != nil {
		return err
	}
	if isSuspiciousMessage(encoded.Bytes()) {
		if err := checkStored(encoded.Bytes(), reflect.TypeOf(obj).Elem()); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("the object is not stored, because it could not be read again: %v", bounded(err)))
		}
	}
	_, err = w.Write(encoded.Bytes())
	return err
}

// isSuspiciousMessage reports whether a message may have a time beyond the years 0 to 9999, or raw JSON
// that is nested too deep. The seconds of such a time take more than five bytes, and its nanoseconds,
// which are field 2, follow. Durations take as many bytes, and nothing follows.
func isSuspiciousMessage(data []byte) bool {
	const nanoseconds = 2 << 3
	long, brackets := 0, 0
	for i, c := range data {
		if c >= 0x80 {
			long++
			continue
		}
		if long >= 5 && i+1 < len(data) && data[i+1] == nanoseconds {
			return true
		}
		long = 0
		if c == '{' || c == '[' {
			brackets++
		}
	}
	return brackets > maxDepth/2
}

func checkStored(data []byte, kind reflect.Type) error {
	stored, err := openEnvelope(data)
	if err != nil {
		return err
	}
	c := &wireCheck{depth: 1, stored: true}
	return c.message(stored.raw, messageOf(kind))
}

// MetadataEntries returns how many labels and annotations an object has that is stored as protobuf, as far
// as it can be read.
func MetadataEntries(data []byte) int {
	const metadata, labels, annotations = 1, 11, 12 // of the object, and of its metadata
	entries := 0
	e, err := openEnvelope(data)
	if err != nil {
		return 0
	}
	_ = eachField(e.raw, func(f occurrence) error {
		if f.number != metadata {
			return nil
		}
		return eachField(f.payload, func(f occurrence) error {
			if f.number == labels || f.number == annotations {
				entries++
			}
			return nil
		})
	})
	return entries
}

// rawJSON are the fields of an object that hold raw JSON.
type rawJSON struct {
	fields []**runtime.RawExtension
	list   *[]runtime.RawExtension
}

func templatesOf(embedded *v1alpha1.EmbeddedSandboxTemplate, more ...**runtime.RawExtension) rawJSON {
	return rawJSON{append(more, &embedded.Template), &embedded.VolumeClaimTemplates}
}

// copyWithRaw returns a copy of an object that shares all else with it, and the raw JSON of the copy.
func copyWithRaw(obj runtime.Object) (runtime.Object, rawJSON) {
	switch obj := obj.(type) {
	case *v1alpha1.Sandbox:
		c := *obj
		return &c, templatesOf(&c.Spec.EmbeddedSandboxTemplate)
	case *v1alpha1.SandboxSet:
		c := *obj
		return &c, templatesOf(&c.Spec.EmbeddedSandboxTemplate, &c.Spec.Patch)
	case *v1alpha1.SandboxTemplate:
		c := *obj
		return &c, templatesOf(&c.Spec.EmbeddedSandboxTemplate)
	case *v1alpha1.SandboxClaim:
		c := *obj
		return &c, rawJSON{list: &c.Spec.VolumeClaimTemplates}
	}
	return obj, rawJSON{}
}

// withEncodedJSON returns an object whose raw JSON is as an encoder of JSON would write it. It does not
// change the given one.
func withEncodedJSON(obj runtime.Object) (runtime.Object, error) {
	obj, raw := copyWithRaw(obj)
	for _, field := range raw.fields {
		if *field == nil || isEncodedJSON((*field).Raw) {
			continue
		}
		text, err := encodedJSON(*field)
		if err != nil {
			return nil, err
		}
		if *field = nil; text != nil {
			*field = &runtime.RawExtension{Raw: text}
		}
	}
	if raw.list == nil {
		return obj, nil
	}
	var list []runtime.RawExtension
	for i := range *raw.list {
		if isEncodedJSON((*raw.list)[i].Raw) {
			continue
		}
		text, err := encodedJSON(&(*raw.list)[i])
		if err != nil {
			return nil, err
		}
		if list == nil {
			list = append(list, *raw.list...)
		}
		list[i] = runtime.RawExtension{Raw: text}
	}
	if list != nil {
		*raw.list = list
	}
	return obj, nil
}

// encodedJSON returns the text of raw JSON as an encoder writes it, and nothing for null.
func encodedJSON(raw *runtime.RawExtension) ([]byte, error) {
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is not stored, because it has a template that is no JSON: %v", bounded(err)))
	}
	if string(text) == "null" {
		return nil, nil
	}
	return text, nil
}

// isEncodedJSON reports whether a text is JSON that has neither white space outside of strings nor what an
// encoder escapes. Other texts may be as they are encoded, too.
func isEncodedJSON(text []byte) bool {
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '"':
			inString = !inString
		case c == '<', c == '>', c == '&', c == 0xe2: // U+2028 and U+2029 begin with 0xe2
			return false
		case !inString && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			return false
		}
	}
	return json.Valid(text)
}
