// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	extensions "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// text is a value that a client writes, where the server may show another one.
type text struct {
	path []string
	// value is what is written, and other is a different value; nil is not tried.
	value, other any
	// isEmpty is set for an empty value, which the server may leave out or replace by a default.
	isEmpty bool
	// isWithin is set for a list with an element that has an empty value.
	isWithin bool
}

func (x text) String() string {
	value, _ := json.Marshal(x.value)
	return strings.Join(x.path, ".") + ": " + string(value)
}

// below returns the text in an object that has it at a field.
func (x text) below(field string) text {
	x.path = append([]string{field}, x.path...)
	return x
}

var (
	// texts are values of types that the server shows in one form, however they are written.
	texts = map[reflect.Type][2]any{
		reflect.TypeFor[metav1.Duration]():   {"90000ms", "91s"},
		reflect.TypeFor[metav1.Time]():       {"2099-01-01T02:00:00.5+02:00", "2099-01-01T00:00:01Z"},
		reflect.TypeFor[metav1.MicroTime]():  {"2099-01-01T02:00:00.5+02:00", "2099-01-01T00:00:01.000000Z"},
		reflect.TypeFor[resource.Quantity](): {"1000m", "2"},
	}
	// elements are valid elements of lists, by their type. Each type of struct in a list needs one.
	elements = map[reflect.Type]map[string]any{
		reflect.TypeFor[metav1.Condition]():                      {"type": "Tested", "status": "True", "reason": "Test", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"},
		reflect.TypeFor[metav1.LabelSelectorRequirement]():       {"key": "a", "operator": "Exists"},
		reflect.TypeFor[networkingv1.NetworkPolicyIngressRule](): {},
		reflect.TypeFor[networkingv1.NetworkPolicyEgressRule]():  {},
		reflect.TypeFor[networkingv1.NetworkPolicyPort]():        {"port": 80},
		reflect.TypeFor[networkingv1.NetworkPolicyPeer]():        {"podSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}}},
		reflect.TypeFor[extensions.EnvVar]():                     {"name": "A", "value": "b"},
		reflect.TypeFor[v1alpha1.SandboxClaimEnvVar]():           {"name": "A", "value": "b"},
		reflect.TypeFor[v1alpha1.CSIMountConfig]():               {"pvName": "pv", "mountPath": "/data"},
		reflect.TypeFor[v1alpha1.RuntimeConfig]():                {"name": "agent-runtime"},
		reflect.TypeFor[v1alpha1.ClaimedSandbox]():               {"name": "box"},
	}
	// keptTexts are types whose values are stored as they are written.
	keptTexts = []reflect.Type{reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[intstr.IntOrString]()}
)

// textsOf returns texts of a type and of every field below it: an empty value of each, and one
// that is written differently than the server shows it.
func textsOf(t *testing.T, of reflect.Type) []text {
	t.Helper()
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if values, ok := texts[of]; ok {
		return []text{{value: values[0], other: values[1]}}
	}
	if slices.Contains(keptTexts, of) {
		return nil
	}
	switch of.Kind() {
	case reflect.Struct:
		return append([]text{{value: map[string]any{}, isEmpty: true}}, textsOfFields(t, of)...)
	case reflect.Map:
		all := []text{{value: map[string]any{}, isEmpty: true}}
		for _, deeper := range textsOf(t, of.Elem()) {
			all = append(all, deeper.below("cpu"))
		}
		return all
	case reflect.Slice:
		return append([]text{{value: []any{}, isEmpty: true}}, textsOfElements(t, of.Elem())...)
	case reflect.Bool:
		return []text{{value: false, other: true, isEmpty: true}}
	case reflect.String:
		return []text{{value: "", isEmpty: true}}
	case reflect.Int32, reflect.Int64:
		return []text{{value: 0, isEmpty: true}}
	default:
		t.Fatalf("there is no text of %s", of)
		return nil
	}
}

func textsOfFields(t *testing.T, of reflect.Type) []text {
	t.Helper()
	var all []text
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" { // its fields are those of the struct around it
			all = append(all, textsOfFields(t, field.Type)...)
			continue
		}
		for _, deeper := range textsOf(t, field.Type) {
			all = append(all, deeper.below(name))
		}
	}
	return all
}

// textsOfElements returns lists of one element, which has a text in one of its fields.
func textsOfElements(t *testing.T, of reflect.Type) []text {
	t.Helper()
	if of.Kind() != reflect.Struct || slices.Contains(keptTexts, of) {
		return nil
	}
	element, ok := elements[of]
	if !ok {
		t.Fatalf("elements has none of type %s", of)
	}
	all := []text{{value: []any{element}}}
	for _, deeper := range textsOfFields(t, of) {
		with := runtime.DeepCopyJSON(asJSON(element))
		setField(with, deeper.path, deeper.value)
		all = append(all, text{value: []any{with}, isWithin: deeper.isEmpty || deeper.isWithin})
	}
	return all
}

// asJSON returns an object with the types of values that the decoder of JSON makes.
func asJSON(object map[string]any) map[string]any {
	raw, _ := json.Marshal(object)
	var decoded map[string]any
	_ = json.Unmarshal(raw, &decoded)
	return decoded
}

// setField sets a field of an object, and makes the objects on the path to it.
func setField(object map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		next, ok := object[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			object[name] = next
		}
		object = next
	}
	object[path[len(path)-1]] = value
}
