// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestCanonical(t *testing.T) {
	tests := map[string]struct {
		in   string
		want string
	}{
		"key order":                 {`{"b":1,"a":{"d":2,"c":3}}`, `{"a":{"c":3,"d":2},"b":1}`},
		"list order is kept":        {`[3, 1, 2]`, `[3,1,2]`},
		"white space":               {" {\n\t\"a\" : [ 1 , 2 ]\r\n} ", `{"a":[1,2]}`},
		"integer beyond float":      {`{"a":9007199254740993}`, `{"a":9007199254740993}`},
		"integer beyond 64 bits":    {`{"a":123456789012345678901234567890}`, `{"a":123456789012345678901234567890}`},
		"exponent stays as written": {`{"a":1e3,"b":1E400}`, `{"a":1e3,"b":1E400}`},
		"fraction stays as written": {`{"a":1.0}`, `{"a":1.0}`},
		"last of equal keys":        {`{"a":1,"a":2}`, `{"a":2}`},
		"one way to escape":         {`{"a":"\u0041\/<>&"}`, `{"a":"A/\u003c\u003e\u0026"}`},
		"null inside is kept":       {`{"a":null}`, `{"a":null}`},
		"scalar":                    {`"x"`, `"x"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := canonicalJSON([]byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}

			again, err := canonicalJSON(got)
			if err != nil {
				t.Fatal(err)
			}
			if string(again) != tc.want {
				t.Errorf("not a fixed point: %s became %s", got, again)
			}

			// The storage codec marshals the extension as part of its object.
			stored, err := json.Marshal(runtime.RawExtension{Raw: got})
			if err != nil {
				t.Fatal(err)
			}
			if string(stored) != tc.want {
				t.Errorf("stored as %s, want %s", stored, tc.want)
			}
		})
	}
}

func TestCanonicalRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"empty":          ``,
		"not JSON":       `{a: 1}`,
		"cut off":        `{"a":`,
		"trailing value": `{} {}`,
		"trailing brace": `{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := canonicalJSON([]byte(in)); err == nil {
				t.Errorf("got %s, want an error", got)
			}
		})
	}
}

func TestCanonicalizeExtension(t *testing.T) {
	tests := map[string]struct {
		in   *runtime.RawExtension
		want *runtime.RawExtension
	}{
		"absent": {nil, nil},
		"empty":  {&runtime.RawExtension{}, nil},
		"null":   {&runtime.RawExtension{Raw: []byte(" null ")}, nil},
		"raw": {
			&runtime.RawExtension{Raw: []byte(`{"b": 1, "a": 2}`)},
			&runtime.RawExtension{Raw: []byte(`{"a":2,"b":1}`)},
		},
		"unreadable stays for validation to name": {
			&runtime.RawExtension{Raw: []byte(`{"a":`)},
			&runtime.RawExtension{Raw: []byte(`{"a":`)},
		},
		"object": {
			&runtime.RawExtension{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}},
			&runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"x"}}`)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, CanonicalExtension(tc.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
