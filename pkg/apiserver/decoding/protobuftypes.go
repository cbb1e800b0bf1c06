// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const statusField = "status"

// wireMessage says what of a type is on the wire of protobuf.
type wireMessage struct {
	fields map[protowire.Number]*wireField
	// leaf checks messages that are one value in JSON.
	leaf func(*wireCheck, []byte) error
}

// wireField is a field of a message.
type wireField struct {
	// name is that in JSON. It is empty if JSON has the fields of the message in its place.
	name string
	// repeated is a list or a map, and key a map, whose entries are messages of a key and a value.
	repeated, key bool
	// text is of text, message of a message, of which one may be the value of a map.
	text    bool
	message *wireMessage
	// uncounted is for what does not count as elements.
	uncounted bool
}

// messages are the *wireMessage of types, by reflect.Type.
var messages sync.Map

// messageOf returns what of a struct type is on the wire.
func messageOf(t reflect.Type) *wireMessage {
	if known, ok := messages.Load(t); ok {
		return known.(*wireMessage)
	}
	m := newMessage(t)
	messages.Store(t, m)
	return m
}

func newMessage(t reflect.Type) *wireMessage {
	switch t {
	case quantity:
		return &wireMessage{leaf: checkWireQuantity}
	case timestamp, microTime:
		return &wireMessage{leaf: checkWireTime}
	case duration:
		return &wireMessage{leaf: func(*wireCheck, []byte) error { return nil }}
	case reflect.TypeFor[intstr.IntOrString]():
		return &wireMessage{leaf: checkIntOrString}
	case rawExtension, reflect.TypeFor[metav1.FieldsV1]():
		return rawMessage(nil)
	}
	m := &wireMessage{fields: map[protowire.Number]*wireField{}}
	for f := range t.Fields() {
		parts := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(parts) < 2 {
			continue
		}
		number, err := strconv.ParseInt(parts[1], 10, 32)
		if err != nil {
			panic(fmt.Sprintf("the field %s of %s has a protobuf tag without a number", f.Name, t)) // a tag of a Go type
		}
		m.fields[protowire.Number(number)] = newField(f)
	}
	return m
}

func newField(f reflect.StructField) *wireField {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	w := &wireField{name: name, uncounted: f.Type == reflect.TypeFor[[]metav1.ManagedFieldsEntry]()}
	t := f.Type
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Map:
		w.repeated, w.key = true, true
		t = t.Elem()
	case reflect.Slice:
		w.repeated = t.Elem().Kind() != reflect.Uint8
		t = t.Elem()
	}
	switch {
	case t == rawExtension:
		w.message = rawMessage(typeOfRaw(f))
	case t.Kind() == reflect.Struct:
		w.message = messageOf(t)
	case t.Kind() == reflect.String:
		w.text = true
	}
	return w
}

// rawMessage is a message that holds raw JSON, which is decoded into a type later, if it is not nil.
func rawMessage(of reflect.Type) *wireMessage {
	if of != nil && of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	return &wireMessage{leaf: func(c *wireCheck, data []byte) error {
		hasJSON := false
		err := eachField(data, func(f occurrence) error {
			if f.number != 1 {
				return nil
			}
			hasJSON = true
			return c.rawJSON(f.payload, of)
		})
		if err == nil && !hasJSON && !c.stored {
			return errNoObject
		}
		return err
	}}
}

var errNoObject = errors.New("must be an object of JSON")

// isText reports whether data may be text. JSON has all text as UTF-8, also that of the server itself
// that is none.
func (c *wireCheck) isText(data []byte) bool { return c.stored || utf8.Valid(data) }

func (c *wireCheck) rawJSON(js []byte, of reflect.Type) error {
	if !json.Valid(js) || !c.stored && !isObject(js) {
		return errNoObject
	}
	if isDeeper(js, maxDepth-c.depth+1) {
		return errTooDeep
	}
	if c.counted != nil {
		c.count(countAll(js))
	}
	if c.stored || !isSuspicious(js) {
		return nil
	}
	if of != nil {
		decoder := json.NewDecoder(bytes.NewReader(js))
		decoder.UseNumber()
		if bad := badValue(decoder, of, nil); bad != nil {
			return &wireError{bad.Field, bad.ErrorBody()}
		}
	}
	return checkNumbers(js)
}

func checkWireQuantity(c *wireCheck, data []byte) error {
	return eachField(data, func(f occurrence) error {
		if f.number != 1 || c.stored {
			return nil
		}
		if !c.isText(f.payload) {
			return errUTF8
		}
		return v1alpha1.CheckQuantity(string(f.payload))
	})
}

// The times in the years 0 to 9999, as seconds since 1970.
var (
	firstSecond = time.Date(0, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	lastSecond  = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC).Unix()
)

func checkWireTime(_ *wireCheck, data []byte) error {
	return eachField(data, func(f occurrence) error {
		value := int64(f.value)
		switch {
		case f.number == 1 && (value < firstSecond || value > lastSecond):
			return errTimeRange
		case f.number == 2 && (value < 0 || value >= int64(time.Second)):
			return errNanoseconds
		}
		return nil
	})
}

var errNanoseconds = errors.New("must have less than a second in nanoseconds")

func checkIntOrString(c *wireCheck, data []byte) error {
	return eachField(data, func(f occurrence) error {
		switch {
		case f.number == 1 && f.value > uint64(intstr.String):
			return errIntOrString
		case f.number == 3 && !c.isText(f.payload):
			return errUTF8
		}
		return nil
	})
}

var errIntOrString = errors.New("must be a number or a string")
