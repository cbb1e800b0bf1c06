// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

// Schemaless parts of a spec (pod templates, volume claim templates, patches) are
// brought into one canonical form, so that two ways to write the same JSON are the
// same bytes: in etcd, in a comparison of specs, and in a hash. Their content is
// validated elsewhere.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// errTrailing is what a second value after the first is refused with.
var errTrailing = errors.New("more than one JSON value")

// canonicalJSON rewrites JSON compactly, with sorted keys and numbers digit for
// digit as they were. Decoding numbers as floats instead would silently change
// a large integer in a field that the server does not know.
//
// The result is a fixed point: it is also, byte for byte, what the storage
// codec makes of it, which is why <, > and & stay escaped.
//
//	{ "b": 1e3, "a": 9007199254740993 }  ->  {"a":9007199254740993,"b":1e3}
func canonicalJSON(raw []byte) ([]byte, error) {
	if podtemplate.IsCanonical(raw) {
		return bytes.Clone(raw), nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("decoding raw JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errTrailing
	}
	return json.Marshal(value)
}

// CanonicalExtension returns the canonical form of one raw field; nil where the
// field is empty or null, because nil is what both read back as. JSON that
// cannot be read stays as it is: strategies run before validation, and
// validation must see, and name, what the client really sent.
func CanonicalExtension(extension *runtime.RawExtension) *runtime.RawExtension {
	if extension == nil {
		return nil
	}
	// Covers a decoded object, which only callers inside the process can set.
	raw, err := extension.MarshalJSON()
	if err != nil {
		return extension
	}
	canonical, err := canonicalJSON(raw)
	if err != nil {
		return extension
	}
	if string(canonical) == "null" {
		return nil
	}
	return &runtime.RawExtension{Raw: canonical}
}

// CanonicalizeList brings every element of a list of raw fields into canonical
// form, in place.
func CanonicalizeList(extensions []runtime.RawExtension) {
	for i := range extensions {
		if canonical := CanonicalExtension(&extensions[i]); canonical != nil {
			extensions[i] = *canonical
		}
	}
}

// CanonicalizeTemplate brings the raw parts of a template into canonical form,
// in place.
func CanonicalizeTemplate(template *v1alpha1.EmbeddedSandboxTemplate) {
	template.Template = CanonicalExtension(template.Template)
	CanonicalizeList(template.VolumeClaimTemplates)
}
