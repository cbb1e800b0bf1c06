// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// canonicalCases are JSON that is known to be canonical (true) or is not (false).
var canonicalCases = map[string]bool{
	`{}`: true, `[]`: true, `""`: true, `null`: true, `true`: true, `false`: true, `0`: true, `-1`: true,
	`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"args":["-c","echo \"a\\b\"\n\t\r"],"name":"a"},{}],"n":[1,-0.5,10e3,1E+2,9007199254740993,0.10]}}`: true,
	`{"a":1,"b":2}`: true, `{"B":1,"a":2}`: true, `[[],{},[null,[1]]]`: true, `"~ !#/"`: true,
	`{"b":1,"a":2}`: false, `{"a":1,"a":2}`: false, `{"a":1,"a":1}`: false, `{"":1}`: false, // which may be canonical
	`{ "a":1}`: false, `{"a": 1}`: false, `[1, 2]`: false, ` 1`: false, "1\n": false,
	`"é"`: false, `"<"`: false, `">"`: false, `"&"`: false, `"\u003c"`: false, `"\/"`: false, `"\u0041"`: false, `"\b"`: false, "\"\x7f\"": false,
	"\"\u2028\"": false, "\"\xff\"": false, "\"\t\"": false, `{"a\"":1,"b":2}`: false,
	// No JSON at all.
	``: false, `{`: false, `[`: false, `{"a"}`: false, `{"a":}`: false, `{"a":1,}`: false, `[1,]`: false, `[,1]`: false, `"`: false, `"\`: false,
	`01`: false, `-`: false, `1.`: false, `.5`: false, `1e`: false, `1e+`: false, `1e+-2`: false, `+1`: false, `--1`: false, `1 1`: false, `{}{}`: false, `nul`: false, `nulll`: false, `NaN`: false,
}

// TestIsCanonical checks that what counts as canonical is what decoding and encoding makes of it.
func TestIsCanonical(t *testing.T) {
	for raw, want := range canonicalCases {
		if got := IsCanonical([]byte(raw)); got != want {
			t.Errorf("%q is canonical: %t, want %t", raw, got, want)
		}
		checkCanonical(t, []byte(raw))
	}
	deep := strings.Repeat("[", maxCanonicalDepth) + strings.Repeat("]", maxCanonicalDepth)
	if !IsCanonical([]byte(deep)) || IsCanonical([]byte("["+deep+"]")) {
		t.Error("the limit of the depth is another one")
	}
}

// checkCanonical checks that JSON which counts as canonical is a fixed point.
func checkCanonical(t *testing.T, raw []byte) {
	t.Helper()
	if !IsCanonical(raw) {
		return
	}
	if slow, err := recode(raw); err != nil || !bytes.Equal(slow, raw) {
		t.Errorf("%q counts as canonical, and becomes %q: %v", raw, slow, err)
	}
}

func FuzzIsCanonical(f *testing.F) {
	for raw := range canonicalCases {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkCanonical(t, raw)
		if slow, err := recode(raw); err == nil {
			checkCanonical(t, slow)
		}
	})
}

// TestCutMetadata checks that what CutMetadata cuts and joins is what decoding and encoding would make.
func TestCutMetadata(t *testing.T) {
	for raw, want := range map[string]struct{ metadata, with string }{
		`{}`:                       {"", `{"metadata":{"x":1}}`},
		`{"spec":{"a":[1]}}`:       {"", `{"metadata":{"x":1},"spec":{"a":[1]}}`},
		`{"a":1,"kind":"b"}`:       {"", `{"a":1,"kind":"b","metadata":{"x":1}}`},
		`{"a":1,"spec":{},"z":[]}`: {"", `{"a":1,"metadata":{"x":1},"spec":{},"z":[]}`},
		`{"metadata":{"labels":{"a":"b"}},"spec":{"metadata":1}}`: {`{"labels":{"a":"b"}}`, `{"metadata":{"x":1},"spec":{"metadata":1}}`},
		`{"a":{"metadata":2},"metadata":null}`:                    {"null", `{"a":{"metadata":2},"metadata":{"x":1}}`},
	} {
		before, metadata, after, ok := CutMetadata([]byte(raw))
		if !ok || string(metadata) != want.metadata || (metadata == nil) != (want.metadata == "") {
			t.Errorf("the metadata of %s is %q, %t; want %q", raw, metadata, ok, want.metadata)
		}
		with := slices.Concat(before, []byte(`{"x":1}`), after)
		if string(with) != want.with {
			t.Errorf("%s with other metadata is %s, want %s", raw, with, want.with)
		}
		if !IsCanonical(with) {
			t.Errorf("%s with other metadata is not canonical: %s", raw, with)
		}
	}
	for raw, isCanonical := range canonicalCases {
		if _, _, _, ok := CutMetadata([]byte(raw)); ok != (isCanonical && strings.HasPrefix(raw, "{")) {
			t.Errorf("the metadata of %q can be cut out: %t", raw, ok)
		}
	}
}

// TestRevisionOfCanonical checks that a template has the same revision however it is written, also where one way is
// canonical, which is not decoded for that.
func TestRevisionOfCanonical(t *testing.T) {
	const canonical = `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"image":"x","name":"a"}],"priority":9007199254740993}}`
	ways := []string{canonical, `{"spec":{"priority":9007199254740993,"containers":[{"name":"a","image":"x"}]}, "metadata":{"labels":{"a":"\u0062"}}}`}
	var revisions []string
	for _, raw := range ways {
		revision, err := TemplateRevision(&runtime.RawExtension{Raw: []byte(raw)})
		if err != nil {
			t.Fatal(err)
		}
		revisions = append(revisions, revision)
	}
	if revisions[0] != revisions[1] {
		t.Errorf("revisions %q of one template", revisions)
	}
	template := &runtime.RawExtension{Raw: []byte(canonical)}
	if allocations := testing.AllocsPerRun(100, func() { _, _ = TemplateRevision(template) }); allocations > 10 {
		t.Errorf("the revision of a canonical template takes %v allocations", allocations)
	}
}
