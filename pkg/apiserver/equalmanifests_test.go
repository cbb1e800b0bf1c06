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

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
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

// refusedPaths are fields that no object may set.
var refusedPaths = []string{"spec.claimDefaults.lifecycle.shutdownTime"}

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
		setField(object.Object, x.path, x.value)
	}
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
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

// TestEqualManifestsShareFields: two managers who apply the same manifest share its fields, and
// writing it again writes nothing, whatever text a value is written in. Every field of every
// kind is tried in every group and version, and in every subresource that can be patched. The
// status of claims is left out: the server corrects what clients write there.
func TestEqualManifestsShareFields(t *testing.T) {
	t.Parallel()
	server := testutil.Start(t)
	client, err := rest.HTTPClientFor(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	template := server.Template(t, "default", "python")
	server.Stock(t, server.SetOf(t, template, "pool", "", 600), 0, 600)
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})

	for _, version := range v1alpha1.ServedVersions {
		resources, err := server.Client.Discovery().ServerResourcesForGroupVersion(version.String())
		if err != nil {
			t.Fatal(err)
		}
		for _, served := range resources.APIResources {
			name, subresource, _ := strings.Cut(served.Name, "/")
			if !slices.Contains(served.Verbs, "patch") || subresource == "proxy" || served.Name == "sandboxclaims/status" {
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
		t.Fatalf("minimalSpecs has no spec of %s", main.kind)
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
	var all []text
	for _, x := range textsOfFields(t, field.Type) {
		all = append(all, x.below(strings.ToLower(part)))
	}
	if m.subresource == "" {
		all = append(all, text{path: []string{"metadata", "labels"}, value: map[string]any{}, isEmpty: true})
	}
	taken := 0
	for i, x := range all {
		name := strings.ToLower(fmt.Sprintf("%s-%s-%s%s-%d", version.Version, version.Group[:8], main.kind.Kind, m.subresource, i))
		name = strings.ReplaceAll(name, ".", "-")
		if m.subresource != "" {
			if code, _, answer := main.write(t, http.MethodPost, "", "?fieldManager=maker", contentJSON, main.manifest(t, name, nil)); code != http.StatusCreated {
				t.Fatalf("creating %s: %d %s", name, code, answer)
			}
		}
		if testText(t, m, name, &x) {
			taken++
		}
	}
	if taken < len(all)/4 {
		t.Errorf("only %d of %d values are taken", taken, len(all))
	}
}

// testText tests one value, and reports whether the server takes it.
func testText(t *testing.T, m *manifests, name string, x *text) bool {
	t.Helper()
	body := m.manifest(t, name, x)
	code, _, answer := m.write(t, http.MethodPatch, name, "?fieldManager=one&force=true", string(types.ApplyYAMLPatchType), body)
	switch {
	case code == http.StatusUnprocessableEntity && (x.other == nil || x.isEmpty || slices.Contains(refusedPaths, strings.Join(x.path, "."))):
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
	if len(owned) == 1 || len(owned) == 2 && owned[0] != owned[1] { // a manager of no fields has no entry
		t.Errorf("%s: two managers who apply the same own %q", x, owned)
	}
	for _, write := range m.sameAgain(t, x, first, body) {
		code, is, answer := m.write(t, write.method, name, "?fieldManager="+write.manager, write.contentType, write.body)
		switch {
		case code != http.StatusOK:
			t.Errorf("%s: %s by %s: %d %s", x, write.name, write.manager, code, answer)
		case !m.isSame(first, is):
			t.Errorf("%s: %s by %s writes: (-before +after)\n%s", x, write.name, write.manager, cmp.Diff(first.Object, is.Object))
			first = is
		}
	}
	if x.other != nil {
		other := *x
		other.value = x.other
		code, is, answer := m.apply(t, name, "three", m.manifest(t, name, &other))
		was, _, _ := unstructured.NestedFieldNoCopy(first.Object, x.path...)
		switch now, _, _ := unstructured.NestedFieldNoCopy(is.Object, x.path...); {
		case code == http.StatusOK && !reflect.DeepEqual(was, now):
			t.Errorf("%s: another manager takes it for %v without force", x, x.other)
		case code != http.StatusOK && code != http.StatusConflict:
			t.Errorf("%s: another manager applies %v: %d %s", x, x.other, code, answer)
		}
	}
	return true
}

// sameAgain returns writes of a value that an object has already.
func (m *manifests) sameAgain(t *testing.T, x *text, is *unstructured.Unstructured, manifest string) []write {
	t.Helper()
	var writes []write
	for _, manager := range []string{"one", "two", "one&force=true", "two&force=true"} {
		writes = append(writes, write{"apply", http.MethodPatch, string(types.ApplyYAMLPatchType), manifest, manager})
	}
	if x.isWithin && slices.Contains(x.path, "networkPolicy") {
		return writes // by a patch or update, its manager comes to own the rules, as of a NetworkPolicy
	}
	patch, put := map[string]any{}, asJSON(is.Object)
	setField(patch, x.path, x.value)
	setField(put, x.path, x.value)
	writes = append(writes,
		write{"merge patch", http.MethodPatch, string(types.MergePatchType), marshal(t, patch), "other"},
		write{"update", http.MethodPut, contentJSON, marshal(t, put), "other"})
	if !x.isEmpty {
		writes = append(writes, write{"JSON patch", http.MethodPatch, string(types.JSONPatchType),
			marshal(t, []map[string]any{{"op": "add", "path": "/" + strings.Join(x.path, "/"), "value": x.value}}), "other"})
	}
	return writes
}

// isSame reports whether nothing was written between two reads of an object. Servers write the
// status of claims at any time.
func (m *manifests) isSame(before, after *unstructured.Unstructured) bool {
	if m.kind.Kind != "SandboxClaim" {
		return before.GetResourceVersion() == after.GetResourceVersion()
	}
	var without [2]map[string]any
	for i, claim := range []*unstructured.Unstructured{before, after} {
		claim = claim.DeepCopy()
		claim.SetResourceVersion("")
		delete(claim.Object, "status")
		without[i] = claim.Object
	}
	return reflect.DeepEqual(without[0], without[1])
}
