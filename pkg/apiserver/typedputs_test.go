// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// asTyped rewrites the field at a path as a client with a Go type of it does.
func asTyped[T any](t *testing.T, obj *unstructured.Unstructured, path ...string) {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(obj.Object, path...)
	if err != nil || !found {
		t.Fatalf("%v of %s: %v", path, obj.GetName(), err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	as := new(T)
	if err := json.Unmarshal(text, as); err != nil {
		t.Fatal(err)
	}
	if text, err = json.Marshal(as); err != nil {
		t.Fatal(err)
	}
	var rewritten any
	if err := json.Unmarshal(text, &rewritten); err != nil {
		t.Fatal(err)
	}
	if cmp.Equal(rewritten, value) {
		t.Errorf("a typed client sends %v of %s as it is", path, obj.GetName())
	}
	if err := unstructured.SetNestedField(obj.Object, rewritten, path...); err != nil {
		t.Fatal(err)
	}
}

// Typed clients add to what they read. A PUT of that kind writes nothing, in every group, and
// a patch of that kind is a change of no pod.
func testTypedPuts(t *testing.T, w *words) {
	const (
		kruisePath = "/apis/agents.kruise.io/v1alpha1/namespaces/default/"
		agentsPath = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/"
		spec       = `"spec":{"containers":[{"name":"a","image":"b","volumeMounts":[{"name":"data","mountPath":"/d"}]}]}`
		claims     = `"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}]`
	)
	for resource, tc := range map[string]struct{ path, apiVersion, kind, field, spec string }{
		"sandboxes":                    {kruisePath, "agents.kruise.io/v1alpha1", "Sandbox", "template", ""},
		"sandboxsets":                  {kruisePath, "agents.kruise.io/v1alpha1", "SandboxSet", "template", `"replicas":0,`},
		"sandboxtemplates":             {kruisePath, "agents.kruise.io/v1alpha1", "SandboxTemplate", "template", ""},
		"sandboxes of agent-sandbox":   {agentsPath, "agents.x-k8s.io/v1beta1", "Sandbox", "podTemplate", ""},
		"templates of agent-sandbox":   {extensionsPath, "extensions.agents.x-k8s.io/v1beta1", "SandboxTemplate", "podTemplate", ""},
		"sandboxes of its old version": {strings.Replace(agentsPath, "v1beta1", "v1alpha1", 1), "agents.x-k8s.io/v1alpha1", "Sandbox", "podTemplate", ""},
	} {
		t.Run(resource, func(t *testing.T) {
			name := "typed-" + strings.ToLower(tc.kind) + "-" + strings.NewReplacer(".", "-", "/", "-").Replace(tc.apiVersion)
			plural := map[string]string{"Sandbox": "sandboxes", "SandboxSet": "sandboxsets", "SandboxTemplate": "sandboxtemplates"}[tc.kind]
			made := w.must(t, http.MethodPost, tc.path+plural, contentJSON, `{"apiVersion":"`+tc.apiVersion+`","kind":"`+tc.kind+
				`","metadata":{"name":"`+name+`"},"spec":{`+tc.spec+claims+`,"`+tc.field+`":{`+spec+`}}}`)
			sent := made.DeepCopy()
			asTyped[corev1.PodTemplateSpec](t, sent, "spec", tc.field)
			asTyped[[]corev1.PersistentVolumeClaim](t, sent, "spec", "volumeClaimTemplates")
			body, err := sent.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			for _, manager := range []string{"one", "two"} {
				got := w.must(t, http.MethodPut, tc.path+plural+"/"+name+"?fieldManager="+manager, contentJSON, string(body))
				if diff := cmp.Diff(made.Object, got.Object); diff != "" {
					t.Errorf("a PUT by manager %s has changed (-want +got):\n%s", manager, diff)
				}
			}
			patch, err := runtime.Encode(unstructured.UnstructuredJSONScheme, sent)
			if err != nil {
				t.Fatal(err)
			}
			w.must(t, http.MethodPatch, tc.path+plural+"/"+name, "application/merge-patch+json", string(patch))
		})
	}
}

// A sandbox of a pool, which refers to its template, is shown with it by every verb, so that
// typed clients can write it back, and a change of something else leaves the reference.
func testShownTemplates(t *testing.T, w *words) {
	set := w.server.SetOf(t, w.server.Template(t, "default", "known"), "shown", "", 2)
	names := w.server.Stock(t, set, 0, 2)
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		sandboxes := "/apis/agents.x-k8s.io/" + version + "/namespaces/default/sandboxes"
		path := sandboxes + "/" + names[0]
		image := func(what string, obj *unstructured.Unstructured) {
			t.Helper()
			containers, ok := at(t, obj, "spec", "podTemplate", "spec", "containers").([]any)
			if !ok || len(containers) != 1 {
				t.Errorf("%s %s shows %v", version, what, obj.Object["spec"])
			}
		}
		stored := func(what string) *v1alpha1.Sandbox {
			t.Helper()
			got, err := w.server.Client.AgentsV1alpha1().Sandboxes("default").Get(t.Context(), names[0], metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Spec.Template != nil || got.Spec.TemplateRef == nil {
				t.Errorf("%s %s: the sandbox has %+v", version, what, got.Spec.EmbeddedSandboxTemplate)
			}
			return got
		}
		got := w.must(t, http.MethodGet, path, contentJSON, "")
		image("get", got)
		image("get of the status", w.must(t, http.MethodGet, path+"/status", contentJSON, ""))
		list := w.must(t, http.MethodGet, sandboxes+"?labelSelector="+v1alpha1.LabelSandboxPool+"%3Dshown", contentJSON, "")
		items, ok := list.Object["items"].([]any)
		if !ok || len(items) != 2 {
			t.Fatalf("listed %v", list.Object)
		}
		for _, item := range items {
			image("list", &unstructured.Unstructured{Object: item.(map[string]any)})
		}
		watched, err := w.dynamic.Resource(schema.GroupVersionResource{Group: "agents.x-k8s.io", Version: version, Resource: "sandboxes"}).
			Namespace("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + names[0]})
		if err != nil {
			t.Fatal(err)
		}
		event := <-watched.ResultChan()
		watched.Stop()
		if shown, ok := event.Object.(*unstructured.Unstructured); ok {
			image("watch", shown)
		} else {
			t.Errorf("watched %v", event)
		}

		asTyped[corev1.PodTemplateSpec](t, got, "spec", "podTemplate")
		before := stored("read").ResourceVersion
		body, _ := got.MarshalJSON()
		image("put", w.must(t, http.MethodPut, path, contentJSON, string(body)))
		if after := stored("put").ResourceVersion; after != before {
			t.Errorf("%s: a PUT that changes nothing is a write", version)
		}
		unseen := got.DeepCopy() // as a client that was shown no template sends it
		if err := unstructured.SetNestedMap(unseen.Object, map[string]any{}, "spec", "podTemplate"); err != nil {
			t.Fatal(err)
		}
		body, _ = unseen.MarshalJSON()
		image("put without the template", w.must(t, http.MethodPut, path, contentJSON, string(body)))
		if after := stored("put without the template").ResourceVersion; after != before {
			t.Errorf("%s: a PUT by a client that was shown no template is a write", version)
		}
		members := sandboxes + "?includeObject=Object&labelSelector=" + v1alpha1.LabelSandboxPool + "%3Dshown"
		code, content := contentOf(t, w.send(t, http.MethodGet, members, "", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", ""))
		if table := string(content); code != http.StatusOK || strings.Contains(table, `"containers"`) || !strings.Contains(table, names[0]) {
			t.Errorf("%s: a Table shows templates: %d %s", version, code, table)
		}
		labels := got.GetLabels()
		labels["example.com/put"] = version
		got.SetLabels(labels)
		body, _ = got.MarshalJSON()
		image("put of a label", w.must(t, http.MethodPut, path, contentJSON, string(body)))
		if got := stored("put of a label"); got.Labels["example.com/put"] != version {
			t.Errorf("%s: labels are %v", version, got.Labels)
		}
		image("patch", w.must(t, http.MethodPatch, path, string(types.MergePatchType), `{"metadata":{"labels":{"example.com/patched":"`+version+`"}}}`))
		image("apply", w.must(t, http.MethodPatch, path+"?fieldManager=labels", string(types.ApplyYAMLPatchType),
			`{"apiVersion":"agents.x-k8s.io/`+version+`","kind":"Sandbox","metadata":{"name":"`+names[0]+`","labels":{"example.com/applied":"`+version+`"}}}`))
		for _, entry := range stored("patch").ManagedFields {
			if strings.Contains(entry.FieldsV1.GetRawString(), "f:podTemplate") {
				t.Errorf("%s: %s owns %s", version, entry.Manager, entry.FieldsV1.GetRawString())
			}
		}
		code, answer := w.do(t, http.MethodPatch, path, string(types.MergePatchType), `{"spec":{"podTemplate":{"spec":{"containers":[{"name":"a","image":"other"}]}}}}`)
		if text := string(answer); code != http.StatusUnprocessableEntity || !strings.Contains(text, "spec.podTemplate: Forbidden") {
			t.Errorf("%s: another template: %d %s", version, code, text)
		}
	}
}
