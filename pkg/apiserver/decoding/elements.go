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
	// maxElements is how many keys and items of lists an object may have, without its status, and
	// with it where it is applied. Each of them is a field that managers own, and the time that
	// this takes grows with them: 70,000 take 3 s. The largest objects of use have some thousands.
	maxElements = 10000
	// maxStatusElements bounds those of a status. A claim lists six for each of 10,000 sandboxes.
	maxStatusElements = 7 * maxElements
	// shortBody is how many bytes the body of a create or an update has that is not looked at
	// before it is decoded: an element takes two.
	shortBody = 2 * maxElements
)

// checkElements returns an error if a body has too many elements. Those of its status count with the
// others, or have a bound of their own. It returns nil for what is neither JSON nor YAML.
func checkElements(body []byte, statusCounts bool) error {
	// One of these is beside each element, unless an alias of YAML repeats it.
	marks := 0
	for _, mark := range []string{":", ",", "[", "-", "?"} {
		marks += bytes.Count(body, []byte(mark))
	}
	if marks <= maxElements && bytes.IndexByte(body, '&') < 0 {
		return nil
	}
	elements, status, ok := countElements(body)
	if !ok {
		js, err := yaml.YAMLToJSON(body)
		if err != nil {
			return nil //nolint:nilerr // the caller has its own error for that
		}
		elements, status, _ = countElements(js)
	}
	if statusCounts {
		elements, status = elements+status, 0
	}
	switch {
	case elements > maxElements:
		return fmt.Errorf("the object has %d keys and items of lists, and may have %d: write fewer fields", elements, maxElements)
	case status > maxStatusElements:
		return fmt.Errorf("the status has %d keys and items of lists, and may have %d: write fewer fields", status, maxStatusElements)
	}
	return nil
}

// countElements returns how many keys and items of lists a JSON text has, and how many of them are
// in the status. Of a list, which is a JSON patch, it counts those in the values of its operations:
// the generic handler has a limit of 10,000 operations. It reports false if the text is no JSON.
func countElements(js []byte) (elements, status int, ok bool) {
	decoder := newJSONDecoder(js)
	counted, notCounted := &elements, 0
	if decoder.PeekKind() == '[' {
		notCounted = 2
	}
	for {
		kind := decoder.PeekKind()
		depth := decoder.StackDepth()
		in, before := decoder.StackIndex(depth)
		isEnd, isValueOfKey := kind == '}' || kind == ']', in == '{' && before%2 == 1
		token, err := decoder.ReadToken()
		if err != nil {
			return 0, 0, false
		}
		if decoder.StackDepth() == 0 {
			return elements, status, true
		}
		if depth <= notCounted || in == 0 || isEnd || isValueOfKey {
			continue
		}
		if depth == 1 && in == '{' {
			counted = &elements
			if token.String() == "status" {
				counted = &status
			}
		}
		*counted++
	}
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
// server then goes on with those that it has stored, as it does where a client sends none. It is
// no error: otherwise an object that has such already could not be updated.
func dropManagedFields(object metav1.Object) {
	if base.ManagedFieldsSize(object) > base.MaxManagedFields {
		object.SetManagedFields(nil)
	}
}
