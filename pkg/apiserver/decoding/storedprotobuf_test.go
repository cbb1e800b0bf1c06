// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// rawFields calls a function for each field of raw JSON in a value, by its path. It makes pointers and
// lists that are empty.
func rawFields(path string, v reflect.Value, do func(path string, raw *runtime.RawExtension)) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		rawFields(path, v.Elem(), do)
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		rawFields(path+"[0]", v.Index(0), do)
	case reflect.Map: // of copies: no field below can be changed
		value := reflect.New(v.Type().Elem()).Elem()
		rawFields(path+"[]", value, func(path string, _ *runtime.RawExtension) { do(path, nil) })
	case reflect.Struct:
		if raw, ok := reflect.TypeAssert[*runtime.RawExtension](v.Addr()); ok {
			do(path, raw)
			return
		}
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				rawFields(path+"."+field.Name, v.Field(i), do)
			}
		}
	}
}

// TestAllRawJSON: each field of raw JSON that a kind has is stored as an encoder of JSON writes it, and the
// given object is not changed.
func TestAllRawJSON(t *testing.T) {
	t.Parallel()
	const given, want = `{ "a": "<" }`, `{"a":"\u003c"}`
	scheme := runtime.NewScheme()
	install.Install(scheme)
	fields := 0
	for kind := range scheme.KnownTypes(v1alpha1.SchemeGroupVersion) {
		obj, err := scheme.New(v1alpha1.SchemeGroupVersion.WithKind(kind))
		if err != nil {
			t.Fatal(err)
		}
		if _, isList := reflect.TypeOf(obj).Elem().FieldByName("Items"); isList || reflect.TypeOf(obj).Elem().PkgPath() != reflect.TypeFor[v1alpha1.Sandbox]().PkgPath() {
			continue // it is not stored
		}
		rawFields(kind, reflect.ValueOf(obj), func(path string, raw *runtime.RawExtension) {
			if raw == nil {
				t.Fatalf("%s is raw JSON in a map", path)
			}
			raw.Raw = []byte(given)
			fields++
		})
		stored, err := withEncodedJSON(obj)
		if err != nil {
			t.Fatal(err)
		}
		rawFields(kind, reflect.ValueOf(stored), func(path string, raw *runtime.RawExtension) {
			if string(raw.Raw) != want {
				t.Errorf("%s is stored as %s, want %s: add it to copyWithRaw", path, raw.Raw, want)
			}
		})
		rawFields(kind, reflect.ValueOf(obj), func(path string, raw *runtime.RawExtension) {
			if string(raw.Raw) != given {
				t.Errorf("%s of the given object is %s", path, raw.Raw)
			}
		})
	}
	if fields < 8 {
		t.Errorf("%d fields were found", fields)
	}
}
