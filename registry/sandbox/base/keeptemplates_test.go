// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Both decode to nothing, as a pod template and as a volume claim.
const sparse, full = `{"spec":{}}`, `{"metadata":{"creationTimestamp":null},"spec":{}}`

// rawSpecFields calls f for each field of raw JSON in the spec of an object.
func rawSpecFields(obj runtime.Object, f func(name string, field reflect.Value)) {
	var visit func(v reflect.Value)
	visit = func(v reflect.Value) {
		for i := range v.NumField() {
			switch field := v.Field(i); {
			case field.Type() == reflect.TypeFor[*runtime.RawExtension](), field.Type() == reflect.TypeFor[[]runtime.RawExtension]():
				f(v.Type().Field(i).Name, field)
			case field.Kind() == reflect.Struct && v.Type().Field(i).IsExported():
				visit(field)
			}
		}
	}
	if spec := reflect.ValueOf(obj).Elem().FieldByName("Spec"); spec.IsValid() && spec.Kind() == reflect.Struct {
		visit(spec)
	}
}

func fill(obj runtime.Object, text string) {
	rawSpecFields(obj, func(_ string, field reflect.Value) {
		raw := runtime.RawExtension{Raw: []byte(text)}
		if field.Kind() == reflect.Slice {
			field.Set(reflect.ValueOf([]runtime.RawExtension{raw}))
		} else {
			field.Set(reflect.ValueOf(&raw))
		}
	})
}

func textOf(field reflect.Value) string {
	if field.Kind() == reflect.Slice {
		return string(field.Index(0).Interface().(runtime.RawExtension).Raw)
	}
	return string(field.Interface().(*runtime.RawExtension).Raw)
}

// A PUT, and nothing else, keeps the text of every raw field of every kind.
func TestPutKeepsStoredTemplates(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	found := 0
	for kind := range scheme.KnownTypes(v1alpha1.SchemeGroupVersion) {
		for verb, keeps := range map[string]bool{"update": true, "patch": false} {
			sent, err := scheme.New(v1alpha1.SchemeGroupVersion.WithKind(kind))
			if err != nil {
				t.Fatal(err)
			}
			stored := sent.DeepCopyObject()
			fill(sent, full)
			fill(stored, sparse)
			var start runtime.Object
			info := &keepStoredTemplates{rest.DefaultUpdatedObjectInfo(sent, func(_ context.Context, updated, old runtime.Object) (runtime.Object, error) {
				start = old
				return updated, nil
			})}
			ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{Verb: verb})
			updated, err := info.UpdatedObject(ctx, stored)
			if err != nil {
				t.Fatal(err)
			}
			rawSpecFields(updated, func(name string, field reflect.Value) {
				found++
				want := full
				if keeps && name != "Patch" { // null has a meaning in a patch
					want = sparse
				}
				if got := textOf(field); got != want {
					t.Errorf("%s of %s after %s: %s, want %s", name, kind, verb, got, want)
				}
			})
			rawSpecFields(start, func(name string, field reflect.Value) {
				if got := textOf(field); keeps && name != "Patch" && got != full {
					t.Errorf("the managed fields of %s are those of a change of %s from %s", kind, name, got)
				}
			})
			rawSpecFields(stored, func(name string, field reflect.Value) {
				if got := textOf(field); got != sparse {
					t.Errorf("the stored %s has changed: %s is %s", kind, name, got)
				}
			})
		}
	}
	if found < 14 {
		t.Errorf("%d raw fields were found: the kinds are not walked through", found)
	}
}
