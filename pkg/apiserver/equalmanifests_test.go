// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

const numbers = `{"spec":{"containers":[{"name":"main","image":"python","resources":{"limits":{"cpu":"1000m","memory":"1024Mi"}}}]}}`

// minimalSpecs are the least that an object of each kind has to say, by group and kind. A
// kind that is served needs one.
var minimalSpecs = map[string]string{
	"agents.kruise.io SandboxClaim":                    `{"templateName":"pool"}`,
	"agents.kruise.io SandboxSet":                      `{"replicas":1,"template":` + numbers + `}`,
	"agents.kruise.io SandboxTemplate":                 `{"template":` + numbers + `}`,
	"agents.kruise.io Sandbox":                         `{"template":` + numbers + `}`,
	"agents.x-k8s.io Sandbox":                          `{"podTemplate":` + numbers + `}`,
	"extensions.agents.x-k8s.io SandboxTemplate":       `{"podTemplate":` + numbers + `}`,
	"extensions.agents.x-k8s.io SandboxWarmPool":       `{"replicas":1,"sandboxTemplateRef":{"name":"python"}}`,
	"extensions.agents.x-k8s.io/v1beta1 SandboxClaim":  `{"warmPoolRef":{"name":"pool"}}`,
	"extensions.agents.x-k8s.io/v1alpha1 SandboxClaim": `{"sandboxTemplateRef":{"name":"python"},"warmpool":"pool"}`,
}

// text is a value that a client writes, where the server may show another one.
type text struct {
	path []string
	// value is what is written, and other is another value that it is no other text of; nil is
	// not tried.
	value, other any
	// vanishes is set for what the server does not show at all.
	vanishes bool
	// must is set where the server has to take it.
	must bool
}

func (x text) String() string {
	value, _ := json.Marshal(x.value)
	return strings.Join(x.path, ".") + ": " + string(value)
}

var (
	// texts are values of types that are shown in one form, however they are written.
	texts = map[reflect.Type][2]any{
		reflect.TypeFor[metav1.Duration]():   {"90000ms", "91s"},
		reflect.TypeFor[metav1.Time]():       {"2099-01-01T02:00:00.5+02:00", "2099-01-01T00:00:01Z"},
		reflect.TypeFor[metav1.MicroTime]():  {"2099-01-01T02:00:00.5+02:00", "2099-01-01T00:00:01.000000Z"},
		reflect.TypeFor[resource.Quantity](): {"1000m", "2"},
	}
	// elements are what an element of a list has to say, for lists of types that have one of these.
	elements = map[reflect.Type]map[string]any{
		reflect.TypeFor[metav1.Condition](): {"type": "Tested", "status": "True", "reason": "Test", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"},
	}
	raw = reflect.TypeFor[runtime.RawExtension]()
	// refusedPaths are fields that no object may set.
	refusedPaths = []string{"spec.claimDefaults.lifecycle.shutdownTime"}
)

// textsOf returns the texts of every field of a type.
func textsOf(t *testing.T, of reflect.Type, path []string) []text {
	t.Helper()
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if values, ok := texts[of]; ok {
		return []text{{path: path, value: values[0], other: values[1], must: true}}
	}
	vanishing := func(value, other any) text {
		return text{path: path, value: value, other: other, vanishes: true}
	}
	switch {
	case of == raw || reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return nil // kept as it is written
	case of.Kind() == reflect.Struct:
		all := []text{vanishing(map[string]any{}, nil)}
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch name {
			case "-":
			case "":
				all = append(all, textsOf(t, field.Type, path)[1:]...)
			default:
				all = append(all, textsOf(t, field.Type, append(slices.Clone(path), name))...)
			}
		}
		return all
	case of.Kind() == reflect.Map:
		all := []text{vanishing(map[string]any{}, nil)}
		for _, deeper := range textsOf(t, of.Elem(), append(slices.Clone(path), "cpu")) {
			if deeper.must {
				all = append(all, deeper)
			}
		}
		return all
	case of.Kind() == reflect.Slice:
		all := []text{vanishing([]any{}, nil)}
		for _, deeper := range textsOf(t, of.Elem(), nil) {
			if !deeper.must {
				continue
			}
			element, ok := elements[of.Elem()]
			if !ok || len(deeper.path) != 1 {
				t.Fatalf("%v: lists of %s have values with several texts, and elements has none", path, of.Elem())
			}
			element = runtime.DeepCopyJSON(element)
			element[deeper.path[0]] = deeper.value
			all = append(all, text{path: path, value: []any{element}, must: true})
		}
		return all
	case of.Kind() == reflect.Bool:
		return []text{vanishing(false, true)}
	case of.Kind() == reflect.String:
		return []text{vanishing("", nil)}
	default:
		return []text{vanishing(0, nil)}
	}
}

// manifests is what is served as a resource or subresource, and what is written to it.
type manifests struct {
	*conn
	path, subresource string
	kind              schema.GroupVersionKind
	spec              string
}

func (m *manifests) manifest(t *testing.T, name string, x *text) string {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(m.kind)
	object.SetName(name)
	if m.spec != "" {
		var spec map[string]any
		if err := json.Unmarshal([]byte(m.spec), &spec); err != nil {
			t.Fatal(err)
		}
		object.Object["spec"] = spec
	}
	if x != nil {
		set(t, object, x)
	}
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func set(t *testing.T, object *unstructured.Unstructured, x *text) {
	t.Helper()
	at := object.Object
	for _, name := range x.path[:len(x.path)-1] {
		next, ok := at[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[name] = next
		}
		at = next
	}
	at[x.path[len(x.path)-1]] = x.value
}

func (m *manifests) apply(t *testing.T, name, manager, body string) (int, *unstructured.Unstructured, string) {
	t.Helper()
	return m.write(t, http.MethodPatch, name, "?fieldManager="+manager, string(types.ApplyYAMLPatchType), body)
}

func (m *manifests) write(t *testing.T, method, name, query, contentType, body string) (int, *unstructured.Unstructured, string) {
	t.Helper()
	path := m.path + "/" + name
	if m.subresource != "" {
		path += "/" + m.subresource
	}
	code, answer := m.do(t, method, strings.TrimSuffix(path, "/")+query, contentType, body)
	object := &unstructured.Unstructured{}
	if code < 300 {
		if err := object.UnmarshalJSON(answer); err != nil {
			t.Fatal(err)
		}
	}
	return code, object, string(answer)
}

// TestEqualManifestsShareFields: whatever text a value is written in, two managers who apply
// the same manifest share its fields, and what is written again is no write. Every duration,
// time, quantity and list of the specs of agents.kruise.io is tried, and /scale. docs/api.md
// says what does not hold elsewhere.
func TestEqualManifestsShareFields(t *testing.T) {
	server := testutil.Start(t)
	client, err := rest.HTTPClientFor(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	template := server.Template(t, "default", "python")
	server.Stock(t, server.SetOf(t, template, "pool", "", 400), 0, 400)
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})

	for _, version := range v1alpha1.ServedVersions {
		if version.Group != v1alpha1.GroupName {
			continue
		}
		resources, err := server.Client.Discovery().ServerResourcesForGroupVersion(version.String())
		if err != nil {
			t.Fatal(err)
		}
		for _, served := range resources.APIResources {
			name, subresource, _ := strings.Cut(served.Name, "/")
			if !slices.Contains(served.Verbs, "patch") || subresource == "proxy" || subresource == "status" {
				continue
			}
			m := &manifests{conn: &conn{server: server, client: client}, path: fmt.Sprintf("/apis/%s/namespaces/default/%s", version, name), subresource: subresource}
			m.kind = version.WithKind(served.Kind)
			if served.Group != "" {
				m.kind = schema.GroupVersionKind{Group: served.Group, Version: served.Version, Kind: served.Kind}
			}
			t.Run(fmt.Sprintf("%s %s", version, served.Name), func(t *testing.T) { testManifests(t, m, scheme, version, resources) })
		}
	}
}

func testManifests(t *testing.T, m *manifests, scheme *runtime.Scheme, version schema.GroupVersion, resources *metav1.APIResourceList) {
	typed, err := scheme.New(m.kind)
	if err != nil {
		t.Fatal(err)
	}
	main := *m
	main.subresource = ""
	for _, served := range resources.APIResources {
		if strings.HasSuffix(m.path, "/"+served.Name) {
			main.kind = version.WithKind(served.Kind)
		}
	}
	var ok bool
	for _, key := range []string{version.Group, version.String()} {
		if spec, is := minimalSpecs[key+" "+main.kind.Kind]; is {
			main.spec, ok = spec, true
		}
	}
	if !ok {
		t.Fatalf("minimalSpecs says nothing of %s", main.kind)
	}
	part := "Spec"
	switch m.subresource {
	case "":
		m = &main
	case "status":
		part = "Status"
	}
	field, ok := reflect.TypeOf(typed).Elem().FieldByName(part)
	if !ok {
		t.Fatalf("%T has no %s", typed, part)
	}
	all := textsOf(t, field.Type, []string{strings.ToLower(part)})[1:]
	all = slices.DeleteFunc(all, func(x text) bool { return !x.must || slices.Contains(refusedPaths, strings.Join(x.path, ".")) })
	if m.subresource == "" {
		all = append(all, text{path: []string{"metadata", "labels"}, value: map[string]any{}, vanishes: true})
	}
	taken := 0
	for i, x := range all {
		name := fmt.Sprintf("%s-%d", strings.ToLower(main.kind.Kind), i)
		name = strings.NewReplacer("/", "-", ".", "-").Replace(fmt.Sprintf("%s-%s", version.Version+version.Group[:8]+m.subresource, name))
		if m.subresource != "" {
			if code, _, answer := main.write(t, http.MethodPost, "", "?fieldManager=maker", contentJSON, main.manifest(t, name, nil)); code != http.StatusCreated {
				t.Fatalf("creating %s: %d %s", name, code, answer)
			}
		}
		if testText(t, m, name, &x) {
			taken++
		}
	}
	if taken < len(all) {
		t.Errorf("only %d of %d values are taken", taken, len(all))
	}
}

// testText tests one value, and reports whether the server takes it.
func testText(t *testing.T, m *manifests, name string, x *text) bool {
	t.Helper()
	body := m.manifest(t, name, x)
	code, _, answer := m.write(t, http.MethodPatch, name, "?fieldManager=one&force=true", string(types.ApplyYAMLPatchType), body)
	switch {
	case code == http.StatusUnprocessableEntity && !x.must:
		return false
	case code > 299:
		t.Errorf("%s: %d %s", x, code, answer)
		return false
	}
	code, first, answer := m.apply(t, name, "two", body)
	if code != http.StatusOK {
		t.Errorf("%s: two managers who apply the same are in conflict: %d %s", x, code, answer)
		return true
	}
	var owned []string
	for _, entry := range first.GetManagedFields() {
		if entry.Manager == "one" || entry.Manager == "two" {
			owned = append(owned, entry.FieldsV1.GetRawString())
		}
	}
	if len(owned) == 1 || len(owned) == 2 && owned[0] != owned[1] { // an empty list of keyed items is no field
		t.Errorf("%s: two managers who apply the same own %q", x, owned)
	}
	unchanged := func(what string, code int, is *unstructured.Unstructured, answer string) {
		t.Helper()
		if code != http.StatusOK || is.GetResourceVersion() != first.GetResourceVersion() {
			t.Errorf("%s: %s: %d, and version %s after %s: %s", x, what, code, is.GetResourceVersion(), first.GetResourceVersion(), answer)
		}
	}
	for _, manager := range []string{"one", "two", "one&force=true", "two&force=true"} {
		code, is, answer := m.apply(t, name, manager, body)
		unchanged("applied again by "+manager, code, is, answer)
	}
	patch := &unstructured.Unstructured{Object: map[string]any{}}
	set(t, patch, x)
	merge, _ := json.Marshal(patch.Object)
	code, is, answer := m.write(t, http.MethodPatch, name, "", string(types.MergePatchType), string(merge))
	unchanged("merge patch", code, is, answer)
	put := first.DeepCopy()
	set(t, put, x)
	whole, _ := json.Marshal(put)
	code, is, answer = m.write(t, http.MethodPut, name, "", contentJSON, string(whole))
	unchanged("put", code, is, answer)
	if !x.vanishes {
		value, _ := json.Marshal(x.value)
		code, is, answer = m.write(t, http.MethodPatch, name, "", string(types.JSONPatchType),
			fmt.Sprintf(`[{"op":"add","path":"/%s","value":%s}]`, strings.Join(x.path, "/"), value))
		unchanged("JSON patch", code, is, answer)
	}
	if x.other != nil {
		other := *x
		other.value = x.other
		if code, _, answer := m.apply(t, name, "three", m.manifest(t, name, &other)); code != http.StatusConflict {
			t.Errorf("%s: another manager takes it for %v without force: %d %s", x, x.other, code, answer)
		}
	}
	return true
}
