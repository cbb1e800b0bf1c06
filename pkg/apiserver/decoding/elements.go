// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

const (
	// maxElements is how many keys and items of lists a body may have, and an object that is updated or
	// patched, without its status and its managedFields, unless it had as many before. Each of them is a
	// field that managers own, and the time that this takes grows with them: 70,000 take 3 s. The largest
	// objects of use have some thousands.
	maxElements = 10000
	// maxDecodedElements bounds those of an object that is decoded, which for a patch is its result. A
	// claim puts the pod template of its pool into a sandbox, and earlier versions let each have 40,000.
	// The rest is for what the server adds, such as a deletionTimestamp. So any object can be patched.
	maxDecodedElements = 8*maxElements + 1000
	// maxStatusElements bounds those of a status. A claim lists six for each of 10,000 sandboxes.
	maxStatusElements = 7 * maxElements
	// shortBody is how many bytes the body of a create or an update has that is not looked at
	// before it is decoded: an element takes two.
	shortBody = 2 * maxElements
)

// elements are how many keys and items of lists a text has: in a status, and in all else but
// managedFields.
type elements struct{ object, status int }

// checkBody returns an error if these are too many for a body.
func (n elements) checkBody() error {
	if n.object+n.status > maxElements {
		return fmt.Errorf("the body has %d keys and items of lists, and may have %d: write fewer fields", n.object+n.status, maxElements)
	}
	return nil
}

// checkObject returns an error if these are too many for an object.
func (n elements) checkObject() error {
	switch {
	case n.object > maxDecodedElements:
		return tooManyElements(n.object)
	case n.status > maxStatusElements:
		return fmt.Errorf("the status has %d keys and items of lists, and may have %d: write fewer fields", n.status, maxStatusElements)
	}
	return nil
}

// tooManyElements returns the error for an object with too many.
func tooManyElements(n int) error {
	return fmt.Errorf("the object has %d keys and items of lists, and may have %d: write fewer fields", n, maxElements)
}

// elementsOf counts the elements of a text. It returns none for what is neither JSON nor YAML, and for
// what has few.
func elementsOf(text []byte) elements {
	// One of these is beside each element, unless an alias of YAML repeats it.
	marks := 0
	for _, mark := range []string{":", ",", "[", "{", "-", "?"} {
		marks += bytes.Count(text, []byte(mark))
	}
	if marks <= maxElements && bytes.IndexByte(text, '&') < 0 {
		return elements{}
	}
	n, ok := countElements(text)
	if !ok {
		js, err := yaml.YAMLToJSON(text)
		if err != nil {
			return elements{} // the caller has its own error for that
		}
		n, _ = countElements(js)
	}
	return n
}

// countElements counts the elements of a JSON text. Of a list, which is a JSON patch, it counts those in
// the values of its operations: the generic handler has a limit of 10,000 operations. It reports
// false if the text is no JSON.
func countElements(js []byte) (elements, bool) {
	c := elementCounter{Decoder: newJSONDecoder(js)}
	c.counted = &c.n.object
	if c.PeekKind() == '[' {
		c.notCounted = 2
	}
	for {
		if err := c.next(); err != nil {
			return elements{}, false
		}
		if c.StackDepth() == 0 {
			return c.n, true
		}
	}
}

// countAll counts all elements of valid JSON, which is in an object.
func countAll(js []byte) int {
	c := elementCounter{Decoder: newJSONDecoder(js), inner: true}
	c.counted = &c.n.object
	for {
		if c.next() != nil { // the end
			return c.n.object
		}
	}
}

// elementCounter counts the elements of a JSON text while it is read.
type elementCounter struct {
	*jsontext.Decoder
	n elements
	// counted is where the next elements count, and notCounted the depth up to which none does.
	counted    *int
	notCounted int
	// top is the last key of the object itself.
	top string
	// inner means that the text is not the object, but in it.
	inner bool
}

// next reads a token, and counts it if it is a key or an item of a list.
func (c *elementCounter) next() error {
	kind, depth := c.PeekKind(), c.StackDepth()
	in, before := c.StackIndex(depth)
	token, err := c.ReadToken()
	isEnd, isKey := kind == '}' || kind == ']', in == '{' && before%2 == 0
	if err != nil || isEnd || depth <= c.notCounted || in != '[' && !isKey {
		return err
	}
	if isKey && depth <= 2 && !c.inner {
		err = c.atKey(depth, token.String())
	}
	*c.counted++
	return err
}

// atKey takes in a key of the object, or of an object in it. It passes over managedFields.
func (c *elementCounter) atKey(depth int, key string) error {
	switch {
	case depth == 1 && key == "status":
		c.top, c.counted = key, &c.n.status
	case depth == 1:
		c.top, c.counted = key, &c.n.object
	case c.top == "metadata" && key == "managedFields":
		return c.SkipValue()
	}
	return nil
}

// withoutStatus returns a JSON object with an empty status. It returns what is no object as it is.
func withoutStatus(js []byte) []byte {
	decoder := newJSONDecoder(js)
	if decoder.PeekKind() != '{' {
		return js
	}
	if _, err := decoder.ReadToken(); err != nil {
		return js
	}
	var kept []byte
	from := int64(0)
	for decoder.PeekKind() == '"' {
		key, err := decoder.ReadToken()
		if err != nil {
			return js
		}
		isStatus, start := key.String() == "status", decoder.InputOffset()
		if err := decoder.SkipValue(); err != nil {
			return js
		}
		if isStatus {
			kept = append(append(kept, js[from:start]...), ":{}"...)
			from = decoder.InputOffset()
		}
	}
	return append(kept, js[from:]...)
}

func newJSONDecoder(js []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewReader(js), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// dropManagedFields takes too large managedFields from an object that was decoded from a body. The
// server then continues with those that it has stored, as it does where a client sends none. It is
// no error: otherwise an object that has such already could not be updated.
func dropManagedFields(object metav1.Object) {
	if base.ManagedFieldsSize(object) > base.MaxManagedFields {
		object.SetManagedFields(nil)
	}
}
