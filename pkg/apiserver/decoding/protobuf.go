// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// protobufPrefix begins what the serializer of protobuf writes. A runtime.Unknown follows.
var protobufPrefix = []byte{0x6b, 0x38, 0x73, 0x00}

// errWire is of what is no valid protobuf, or has groups, which no field of ours is. Decoders of
// messages take some of it, and some of them recurse for each group.
var errWire = errors.New("the body is not valid protobuf")

// IsProtobuf reports whether data is an object as the serializer of protobuf writes it.
func IsProtobuf(data []byte) bool { return bytes.HasPrefix(data, protobufPrefix) }

// envelope is what a runtime.Unknown says.
type envelope struct {
	runtime.TypeMeta
	raw []byte
}

// openEnvelope reads what is around the message of an object.
func openEnvelope(data []byte) (envelope, error) {
	var e envelope
	err := eachField(data[len(protobufPrefix):], func(f occurrence) error {
		switch f.number {
		case 1:
			return eachField(f.payload, func(f occurrence) error {
				switch f.number {
				case 1:
					e.APIVersion = string(f.payload)
				case 2:
					e.Kind = string(f.payload)
				}
				return nil
			})
		case 2:
			e.raw = f.payload
		}
		return nil
	})
	return e, err
}

// occurrence is one of a field in a message.
type occurrence struct {
	number protowire.Number
	wire   protowire.Type
	// payload is that of text, bytes and messages, and value that of numbers.
	payload []byte
	value   uint64
	// begin and end are where it is in the message.
	begin, end int
}

// isEmpty reports whether JSON leaves the field out.
func (f occurrence) isEmpty() bool { return len(f.payload) == 0 && f.value == 0 }

// eachField calls a function for each field of a message. It refuses groups.
func eachField(data []byte, do func(occurrence) error) error {
	for at := 0; at < len(data); {
		number, wire, n := protowire.ConsumeTag(data[at:])
		if n < 0 {
			return errWire
		}
		f := occurrence{number: number, wire: wire, begin: at}
		rest, size := data[at+n:], -1
		switch wire {
		case protowire.VarintType:
			f.value, size = protowire.ConsumeVarint(rest)
		case protowire.Fixed32Type:
			var v uint32
			v, size = protowire.ConsumeFixed32(rest)
			f.value = uint64(v)
		case protowire.Fixed64Type:
			f.value, size = protowire.ConsumeFixed64(rest)
		case protowire.BytesType:
			f.payload, size = protowire.ConsumeBytes(rest)
		}
		if size < 0 {
			return errWire
		}
		f.end = at + n + size
		if err := do(f); err != nil {
			return err
		}
		at = f.end
	}
	return nil
}

// checkProtobuf returns an error that names the first field in data that decodes, and that causes
// harm later: all that checkValues refuses, text that is not UTF-8, raw JSON that is none, and an
// IntOrString that is neither. An object with one of the latter could not be encoded as JSON, and no
// list that it is in. It returns the elements of the object. kinds are as in checkValues.
func checkProtobuf(scheme *runtime.Scheme, data []byte, kinds ...schema.GroupVersionKind) (elements, error) {
	if !IsProtobuf(data) {
		return elements{}, nil // the decoder has its own error for that
	}
	e, err := openEnvelope(data)
	if err != nil {
		return elements{}, err
	}
	var n elements
	var checked []reflect.Type
	for _, kind := range withKind(e.GroupVersionKind(), kinds) {
		obj, err := scheme.New(kind)
		if err != nil || slices.Contains(checked, reflect.TypeOf(obj)) {
			continue // nor is it decoded
		}
		checked = append(checked, reflect.TypeOf(obj))
		c := &wireCheck{depth: 1}
		c.counted = &c.n.object
		if err := c.message(e.raw, messageOf(reflect.TypeOf(obj).Elem())); err != nil {
			return elements{}, err
		}
		n = elements{max(n.object, c.n.object), max(n.status, c.n.status)}
	}
	return n, nil
}

// withoutProtobufStatus returns an object without its status, which is a field of a type.
func withoutProtobufStatus(data []byte, kind reflect.Type) ([]byte, error) {
	e, err := openEnvelope(data)
	if err != nil {
		return nil, err
	}
	var status protowire.Number
	for number, f := range messageOf(kind).fields {
		if f.name == statusField {
			status = number
		}
	}
	var kept []byte
	from := 0
	err = eachField(e.raw, func(f occurrence) error {
		if f.number == status {
			kept = append(kept, e.raw[from:f.begin]...)
			from = f.end
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	unknown := runtime.Unknown{TypeMeta: e.TypeMeta, Raw: append(kept, e.raw[from:]...)}
	body, err := unknown.Marshal()
	return append(slices.Clone(protobufPrefix), body...), err
}

// wireCheck checks the fields of a message, as they are on the wire, and counts its elements.
type wireCheck struct {
	n elements
	// counted is where the next elements count, if they do.
	counted *int
	// depth is how deep the message is nested in the JSON of the object.
	depth int
	// stored is for what the server writes itself. It is refused only if it could not be read again:
	// what is stored with a value that requests may not have can be changed.
	stored bool
}

func (c *wireCheck) count(n int) {
	if c.counted != nil {
		*c.counted += n
	}
}

// message checks a message field by field. It is as deep as the types are, which do not recurse.
func (c *wireCheck) message(data []byte, m *wireMessage) error {
	if m.leaf != nil {
		return m.leaf(c, data)
	}
	return eachField(data, func(f occurrence) error {
		of, known := m.fields[f.number]
		if !known {
			c.count(1)
			return nil
		}
		if of.name == "" {
			return c.field(f, of)
		}
		if of.repeated || !f.isEmpty() {
			c.count(1)
		}
		defer c.enter(of)()
		if err := c.field(f, of); err != nil {
			return within(data, f, of, err)
		}
		return nil
	})
}

// enter takes in that what is checked next is in a field, until the returned function is called.
func (c *wireCheck) enter(f *wireField) (leave func()) {
	before, depth := c.counted, c.depth
	switch {
	case f.uncounted:
		c.counted = nil
	case c.depth == 1 && f.name == statusField && c.counted != nil:
		c.counted = &c.n.status
	}
	c.depth++
	if f.repeated {
		c.depth++
	}
	return func() { c.counted, c.depth = before, depth }
}

func (c *wireCheck) field(f occurrence, of *wireField) error {
	switch {
	case f.wire != protowire.BytesType: // a number, or else the decoder has its own error for that: see entry
		return nil
	case of.key:
		return c.entry(f.payload, of)
	case of.message != nil:
		return c.message(f.payload, of.message)
	case of.text && !c.isText(f.payload):
		return errUTF8
	case of.repeated && !of.text: // numbers in a row
		c.count(len(f.payload))
	}
	return nil
}

var errUTF8 = errors.New("must be UTF-8")

// entry checks an entry of a map. No map of ours has numbers. Decoders do not look at the wire types of
// the two fields, so they would take a number for a length, and read what follows it as the text.
func (c *wireCheck) entry(data []byte, of *wireField) error {
	value := *of
	value.key = false
	var seen [3]bool
	return eachField(data, func(f occurrence) error {
		if f.number > 2 {
			return nil
		}
		if f.wire != protowire.BytesType || seen[f.number] {
			return errWire
		}
		seen[f.number] = true
		if f.number == 2 {
			return c.field(f, &value)
		}
		if !c.isText(f.payload) {
			return errUTF8
		}
		return nil
	})
}

// within returns an error with the field in which it is.
func within(data []byte, at occurrence, of *wireField, err error) error {
	if errors.Is(err, errWire) {
		return err
	}
	inner, ok := errors.AsType[*wireError](err)
	if !ok {
		inner = &wireError{detail: "Invalid value: " + err.Error()}
	}
	name := of.name
	switch {
	case of.key:
		key := ""
		_ = eachField(at.payload, func(f occurrence) error { // an entry that was read before
			if f.number == 1 {
				key = string(f.payload)
			}
			return nil
		})
		name = fmt.Sprintf("%s[%s]", name, cut(key, maxShown))
	case of.repeated:
		i := 0
		_ = eachField(data[:at.begin], func(f occurrence) error { // what was read before
			if f.number == at.number {
				i++
			}
			return nil
		})
		name = fmt.Sprintf("%s[%d]", name, i)
	}
	if inner.path != "" {
		name += "." + inner.path
	}
	return &wireError{name, inner.detail}
}

// wireError is an error of a field, as field.Error writes it.
type wireError struct{ path, detail string }

// Error implements error.
func (e *wireError) Error() string { return e.path + ": " + e.detail }
