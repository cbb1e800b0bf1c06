// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// rawStructs calls f for each struct type that a pod template or a volume claim consists of.
func rawStructs(f func(t reflect.Type)) {
	seen := map[reflect.Type]bool{}
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if seen[t] || rawFields(t) == nil {
			return
		}
		seen[t] = true
		f(t)
		for _, field := range rawFields(t) {
			visit(field.typ)
		}
	}
	visit(podTemplateType)
	visit(volumeClaimType)
}

// Every field of every type, with each empty value that JSON has for it: two texts have the
// same meaning if and only if they decode to the same.
func TestNormalizedPodTemplate(t *testing.T) {
	fields := 0
	rawStructs(func(typ reflect.Type) {
		for name, field := range rawFields(typ) {
			for _, value := range []string{`null`, `{}`, `[]`, `""`, `0`, `false`, `"0"`} {
				text := fmt.Sprintf("{%q:%s}", name, value)
				decoded, none := reflect.New(typ), reflect.New(typ)
				if utiljson.Unmarshal([]byte(text), decoded.Interface()) != nil {
					continue // not a value of the field
				}
				fields++
				want := equality.Semantic.DeepEqual(decoded.Interface(), none.Interface()) || field.emptyMeansAbsent && value == `""`
				raw, err := decodeNumbers([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				if _, absent := normalize(raw, typ); absent != want {
					t.Errorf("%s with %s says nothing: %t, want %t", typ, text, absent, want)
				}
			}
		}
	})
	if fields < 500 {
		t.Errorf("%d values were tried: the types are not walked through", fields)
	}
}

func TestSamePodTemplate(t *testing.T) {
	const bare = `{"spec":{"containers":[{"name":"a","image":"b"}]}}`
	with := func(container string) string {
		return `{"spec":{"containers":[{"name":"a","image":"b",` + container + `}]}}`
	}
	for name, tc := range map[string]struct {
		a, b string
		want bool
	}{
		"what a typed client sends": {
			bare, `{"metadata":{"creationTimestamp":null},"spec":{"containers":[{"resources":{},"name":"a","image":"b","env":null}]}}`, true,
		},
		"an empty list":              {bare, with(`"env":[]`), true},
		"an empty runtimeClassName":  {bare, `{"spec":{"runtimeClassName":"","containers":[{"name":"a","image":"b"}]}}`, true},
		"a runtimeClassName":         {bare, `{"spec":{"runtimeClassName":"x","containers":[{"name":"a","image":"b"}]}}`, false},
		"quantities":                 {with(`"resources":{"limits":{"cpu":"1000m","memory":"1Gi"}}`), with(`"resources":{"limits":{"cpu":1,"memory":"1073741824"}}`), true},
		"other quantities":           {with(`"resources":{"limits":{"cpu":"1"}}`), with(`"resources":{"limits":{"cpu":"1m"}}`), false},
		"a quantity of zero":         {with(`"resources":{"limits":{"cpu":"0"}}`), with(`"resources":{}`), false},
		"a divisor of zero":          {with(`"env":[{"name":"e","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu"}}}]`), with(`"env":[{"name":"e","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"0"}}}]`), true},
		"a pointer to nothing":       {bare, with(`"securityContext":{}`), false},
		"a pointer to false":         {bare, with(`"securityContext":{"privileged":false}`), false},
		"an element that is empty":   {with(`"env":[{}]`), bare, false},
		"the order of a list":        {with(`"args":["a","b"]`), with(`"args":["b","a"]`), false},
		"a number or a string":       {with(`"livenessProbe":{"httpGet":{"port":80}}`), with(`"livenessProbe":{"httpGet":{"port":"80"}}`), false},
		"an unknown field":           {bare, with(`"fromTheFuture":null`), false},
		"the same unknown field":     {with(`"fromTheFuture":{"x":1.50}`), with(`"env":null,"fromTheFuture":{"x":1.50}`), true},
		"a number that is too large": {with(`"fromTheFuture":9007199254740993`), with(`"fromTheFuture":9007199254740992`), false},
		"the case of a name":         {bare, with(`"Resources":{}`), false},
		"another type":               {`{"spec":{"containers":7}}`, `{"spec":{"containers":8}}`, false},
		"what is no JSON":            {`{`, `{ `, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := &runtime.RawExtension{Raw: []byte(tc.a)}, &runtime.RawExtension{Raw: []byte(tc.b)}
			if got, back := SamePodTemplate(a, b), SamePodTemplate(b, a); got != tc.want || back != tc.want {
				t.Errorf("%t and %t, want %t", got, back, tc.want)
			}
		})
	}
	if SamePodTemplate(nil, &runtime.RawExtension{Raw: []byte(bare)}) || !SamePodTemplate(nil, nil) {
		t.Error("no template is the same as none alone")
	}
}

// Whatever a typed client has read it sends back with the same meaning.
func TestTypedClientsKeepTheMeaning(t *testing.T) {
	claim := &runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)}
	typed, err := VolumeClaimTemplate(claim)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := json.Marshal(typed)
	if err != nil {
		t.Fatal(err)
	}
	if !SameVolumeClaimTemplate(claim, &runtime.RawExtension{Raw: sent}) {
		t.Errorf("%s is not the same as %s", sent, claim.Raw)
	}
	other := typed.DeepCopy()
	other.Status.Phase = corev1.ClaimBound
	if sent, err = json.Marshal(other); err != nil {
		t.Fatal(err)
	}
	if SameVolumeClaimTemplate(claim, &runtime.RawExtension{Raw: sent}) {
		t.Errorf("%s is the same as %s", sent, claim.Raw)
	}
}

// Every optional string but one is left out if it is empty, wherever it is.
func TestDropEmptyStrings(t *testing.T) {
	tried := 0
	rawStructs(func(typ reflect.Type) {
		for name, field := range rawFields(typ) {
			if field.typ.Kind() != reflect.Pointer || field.typ.Elem().Kind() != reflect.String {
				continue
			}
			tried++
			object := map[string]any{name: "", "fromTheFuture": ""}
			dropEmptyStrings(object, typ)
			want := map[string]any{"fromTheFuture": ""}
			if typ == reflect.TypeFor[corev1.PersistentVolumeClaimSpec]() && name == "storageClassName" {
				want[name] = ""
			}
			if diff := cmp.Diff(want, object); diff != "" {
				t.Errorf("%s of %s (-want +got):\n%s", name, typ, diff)
			}
		}
	})
	if tried < 30 {
		t.Errorf("%d optional strings were tried: the types are not walked through", tried)
	}
	template := map[string]any{"spec": map[string]any{
		"runtimeClassName": "", "hostname": "", "x": "",
		"containers": []any{map[string]any{"name": "a", "securityContext": map[string]any{"procMount": "", "privileged": false}}, "no object"},
	}}
	DropEmptyStrings(template)
	want := map[string]any{"spec": map[string]any{
		"hostname": "", "x": "",
		"containers": []any{map[string]any{"name": "a", "securityContext": map[string]any{"privileged": false}}, "no object"},
	}}
	if diff := cmp.Diff(want, template); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnknownPodTemplateFields(t *testing.T) {
	path := field.NewPath("spec", "podTemplate")
	texts := func(errs []error) (all []string) {
		for _, err := range errs {
			all = append(all, err.Error())
		}
		return all
	}
	raw := &runtime.RawExtension{Raw: []byte(`{"x":1,"spec":{"hostIPC":true,"hostIPC":true,"containers":[{"name":"a"},{"Name":"b"}]}}`)}
	want := []string{
		`unknown field "spec.podTemplate.x"`, `duplicate field "spec.podTemplate.spec.hostIPC"`, `unknown field "spec.podTemplate.spec.containers[1].Name"`,
	}
	if diff := cmp.Diff(want, texts(UnknownPodTemplateFields(raw, path))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	claims := []runtime.RawExtension{{Raw: []byte(`{}`)}, {Raw: []byte(`{"spec":{"x":1}}`)}}
	if diff := cmp.Diff([]string{`unknown field "spec.claims[1].spec.x"`}, texts(UnknownVolumeClaimFields(claims, field.NewPath("spec", "claims")))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, none := range []*runtime.RawExtension{nil, {Raw: []byte(`7`)}, {Raw: []byte(`{"spec":{"hostIPC":7,"x":1}}`)}} {
		if got := UnknownPodTemplateFields(none, path); got != nil {
			t.Errorf("%v", got)
		}
	}
}
