// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

const (
	// maxElements is how many keys and items of lists an object may have that is applied or
	// created. Each of them is a field that managers own, and the time that this takes grows with
	// them: 70,000 take 3 s. The largest objects of use have some thousands.
	maxElements = 10000
	// shortBody is how many bytes the body of a create has that is not looked at: a key takes
	// seven, as a rule. A length of -1, which is not known, is taken for more.
	shortBody = 7 * maxElements
)

// checkElements returns an error if a body has too many elements. It returns nil for what is
// neither JSON nor YAML.
func checkElements(body []byte) error {
	// One of these is beside each element, unless an alias of YAML repeats it.
	marks := 0
	for _, mark := range []string{":", ",", "[", "-", "?"} {
		marks += bytes.Count(body, []byte(mark))
	}
	if marks <= maxElements && bytes.IndexByte(body, '&') < 0 {
		return nil
	}
	count, ok := countElements(body)
	if !ok {
		js, err := yaml.YAMLToJSON(body)
		if err != nil {
			return nil //nolint:nilerr // the caller has its own error for that
		}
		count, _ = countElements(js)
	}
	if count <= maxElements {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object has %d keys and items of lists, and may have %d: write fewer fields", count, maxElements))
}

// countElements returns how many keys and items of lists a JSON text has. Of a list, which is a JSON
// patch, it counts those in the values of its operations: the generic handler has a limit of 10,000
// operations. It reports false if the text is no JSON.
func countElements(js []byte) (count int, ok bool) {
	decoder := jsontext.NewDecoder(bytes.NewReader(js), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	notCounted := 0
	if decoder.PeekKind() == '[' {
		notCounted = 2
	}
	for {
		kind := decoder.PeekKind()
		depth := decoder.StackDepth()
		in, before := decoder.StackIndex(depth)
		isEnd, isValueOfKey := kind == '}' || kind == ']', in == '{' && before%2 == 1
		if _, err := decoder.ReadToken(); err != nil {
			return 0, false
		}
		if decoder.StackDepth() == 0 {
			return count, true
		}
		if depth > notCounted && in != 0 && !isEnd && !isValueOfKey {
			count++
		}
	}
}

// dropManagedFields takes too large managedFields from an object that was decoded from a body. The
// server then goes on with those that it has stored, as it does where a client sends none. It is
// no error: otherwise nobody could update an object that has such already.
func dropManagedFields(object metav1.Object) {
	if base.ManagedFieldsSize(object) > base.MaxManagedFields {
		object.SetManagedFields(nil)
	}
}
