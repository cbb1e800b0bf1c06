// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// warned makes a request, and returns its warnings.
func (w *words) warned(t *testing.T, method, path, contentType, body string) (int, string, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.server.Config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer), strings.Join(resp.Header.Values("Warning"), "\n")
}

// An unknown field in a template is handled by fieldValidation, and its path is that of the group
// of the request. In agents.kruise.io it is stored, and always causes a warning.
func testTemplateTypos(t *testing.T, w *words) {
	const (
		container = `"containers":[{"name":"a","image":"b","volumeMounts":[{"name":"data","mountPath":"/d"}]}]`
		claims    = `"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"storageClasName":"x","resources":{"requests":{"storage":"1Gi"}}}}]`
		spec      = `{"runtimeClasName":"gvisor","priority":1,"priority":1,` + container + `}`
	)
	const ownPath = "/apis/agents.kruise.io/v1alpha1/namespaces/default/"
	for _, tc := range []struct{ path, kind, field, more string }{
		{"/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes", "Sandbox", "podTemplate", ""},
		{"/apis/agents.x-k8s.io/v1alpha1/namespaces/default/sandboxes", "Sandbox", "podTemplate", ""},
		{"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxtemplates", "SandboxTemplate", "podTemplate", ""},
		{"/apis/extensions.agents.x-k8s.io/v1alpha1/namespaces/default/sandboxtemplates", "SandboxTemplate", "podTemplate", ""},
		{ownPath + "sandboxes", "Sandbox", "template", ""},
		{ownPath + "sandboxtemplates", "SandboxTemplate", "template", ""},
		{ownPath + "sandboxsets", "SandboxSet", "template", `"replicas":0,`},
	} {
		t.Run(tc.path, func(t *testing.T) {
			groupVersion, _, _ := strings.Cut(tc.path, "/namespaces")
			apiVersion := strings.TrimPrefix(groupVersion, "/apis/")
			body := func(name string) string {
				return `{"apiVersion":"` + apiVersion + `","kind":"` + tc.kind + `","metadata":{"name":"` + name + `"},"spec":{` +
					tc.more + claims + `,"` + tc.field + `":{"spec":` + spec + `}}}`
			}
			own := strings.HasPrefix(tc.path, ownPath)
			told := func(text string) bool {
				return strings.Contains(text, `unknown field \"spec.`+tc.field+`.spec.runtimeClasName\"`) &&
					strings.Contains(text, `duplicate field \"spec.`+tc.field+`.spec.priority\"`) == !own
			}
			for validation, want := range map[string]struct {
				code     int
				warnings bool
			}{
				"Strict": {http.StatusBadRequest, false}, "Warn": {http.StatusCreated, true}, "Ignore": {http.StatusCreated, false},
			} {
				if own {
					want.code, want.warnings = http.StatusCreated, true
				}
				code, answer, warnings := w.warned(t, http.MethodPost, tc.path+"?dryRun=All&fieldValidation="+validation, contentJSON, body("typo"))
				if code != want.code || told(warnings) != want.warnings || code == http.StatusBadRequest && !told(answer) {
					t.Errorf("%s: %d %.400s, warnings %s", validation, code, answer, warnings)
				}
				if code == http.StatusCreated && !strings.Contains(answer, "runtimeClasName") {
					t.Errorf("%s: the field is not kept: %s", validation, answer)
				}
			}
			for _, name := range []string{"typos-" + strings.ReplaceAll(apiVersion[strings.Index(apiVersion, "/")+1:], ".", "-") + "-" + strings.ToLower(tc.kind)} {
				apply := string(types.ApplyYAMLPatchType)
				code, answer, warnings := w.warned(t, http.MethodPatch, tc.path+"/"+name+"?fieldManager=m&dryRun=All", apply, body(name))
				if own && (code != http.StatusCreated || !told(warnings)) || !own && (code != http.StatusBadRequest || !strings.Contains(answer, "storageClasName")) {
					t.Errorf("apply: %d %.400s, warnings %s", code, answer, warnings)
				}
			}
		})
	}
	// What a write does not change is not warned of again.
	made := `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"Sandbox","metadata":{"name":"kept"},"spec":{"template":{"spec":{"runtimeClasName":"x",` + `"containers":[{"name":"a","image":"b"}]}}}}`
	if code, answer, _ := w.warned(t, http.MethodPost, ownPath+"sandboxes", contentJSON, made); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	if code, answer, warnings := w.warned(t, http.MethodPatch, ownPath+"sandboxes/kept", string(types.MergePatchType), `{"metadata":{"labels":{"a":"b"}}}`); code != http.StatusOK || warnings != "" {
		t.Errorf("%d %s, warnings %s", code, answer, warnings)
	}
}

// Server-side apply merges containers by name in every group, also in an object with an unknown
// field.
func testApplyMergesContainers(t *testing.T, w *words) {
	for _, tc := range []struct{ path, kind, field string }{
		{"/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes", "Sandbox", "podTemplate"},
		{"/apis/extensions.agents.x-k8s.io/v1alpha1/namespaces/default/sandboxtemplates", "SandboxTemplate", "podTemplate"},
		{"/apis/agents.kruise.io/v1alpha1/namespaces/default/sandboxtemplates", "SandboxTemplate", "template"},
	} {
		groupVersion, _, _ := strings.Cut(tc.path, "/namespaces")
		apiVersion := strings.TrimPrefix(groupVersion, "/apis/")
		name := "merged-" + strings.ToLower(tc.field+tc.kind)
		apply := func(manager, spec string) {
			t.Helper()
			code, answer, _ := w.warned(t, http.MethodPatch, tc.path+"/"+name+"?fieldManager="+manager, string(types.ApplyYAMLPatchType),
				`{"apiVersion":"`+apiVersion+`","kind":"`+tc.kind+`","metadata":{"name":"`+name+`"},"spec":{"`+tc.field+`":{"spec":`+spec+`}}}`)
			if code != http.StatusOK && code != http.StatusCreated {
				t.Fatalf("%s %s: %d %s", tc.path, manager, code, answer)
			}
		}
		code, answer, _ := w.warned(t, http.MethodPost, tc.path+"?fieldValidation=Ignore", contentJSON, `{"apiVersion":"`+apiVersion+`","kind":"`+tc.kind+
			`","metadata":{"name":"`+name+`"},"spec":{"`+tc.field+`":{"fromTheFuture":[1],"spec":{"x":1,"containers":[{"name":"a","image":"a","y":{},"env":[{"name":"A","z":true}]}],"volumes":[{"emptyDir":{}}]}}}}`)
		if code != http.StatusCreated {
			t.Fatalf("%s: %d %s", tc.path, code, answer)
		}
		apply("one", `{"containers":[{"name":"b","image":"b","ports":[{"containerPort":1}]}]}`)
		apply("two", `{"containers":[{"name":"c","image":"c"}]}`)
		apply("one", `{"containers":[{"name":"b","image":"b2"}]}`)
		got := w.must(t, http.MethodGet, tc.path+"/"+name, contentJSON, "")
		containers, _ := at(t, got, "spec", tc.field, "spec", "containers").([]any)
		var images []string
		for _, container := range containers {
			images = append(images, container.(map[string]any)["image"].(string))
		}
		if is := strings.Join(images, ","); is != "a,b2,c" {
			t.Errorf("%s: the images are %s", tc.path, is)
		}
		if at(t, got, "spec", tc.field, "spec", "x") == nil || at(t, got, "spec", tc.field, "fromTheFuture") == nil || strings.Contains(answer, "ports") {
			t.Errorf("%s: after apply %v", tc.path, got.Object["spec"])
		}
	}
}
