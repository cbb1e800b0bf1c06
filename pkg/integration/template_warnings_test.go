// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// TestNotKeptIsTold: what a pause does not keep, and rules that are not applied,
// are accepted with a warning by every verb, dry runs included.
func TestNotKeptIsTold(t *testing.T) {
	s := start(t)
	client, heard := hearing(t, s)
	api := client.AgentsV1alpha1().RESTClient()
	const contents, rules = "spec.persistentContents: ", "spec.networkPolicy: "
	pod := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "busybox:1"}}}}
	tests := map[string]struct {
		resource, kind string
		spec           map[string]any
		want           string
	}{
		"set":      {"sandboxsets", "SandboxSet", map[string]any{"replicas": 0, "persistentContents": []any{"ip"}}, contents},
		"template": {"sandboxtemplates", "SandboxTemplate", map[string]any{"persistentContents": []any{"memory"}}, contents},
		"rules": {"sandboxtemplates", "SandboxTemplate", map[string]any{
			"networkPolicy": map[string]any{"ingress": []any{}}, "networkPolicyManagement": "Unmanaged",
		}, rules},
		"sandbox": {"sandboxes", "Sandbox", map[string]any{"paused": true, "persistentContents": []any{"filesystem"}}, contents},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := func(with bool, version string) []byte {
				spec := map[string]any{"template": pod}
				for key, value := range test.spec {
					if with || key == "replicas" || key == "paused" {
						spec[key] = value
					}
				}
				raw, err := json.Marshal(map[string]any{
					"apiVersion": "agents.kruise.io/v1alpha1", "kind": test.kind, "spec": spec,
					"metadata": &metav1.ObjectMeta{Name: name, ResourceVersion: version},
				})
				if err != nil {
					t.Fatal(err)
				}
				return raw
			}
			// current is the object as a client replaces it, which must have read it.
			current := func(with bool) []byte {
				raw, err := api.Get().Namespace(namespace).Resource(test.resource).Name(name).Do(t.Context()).Raw()
				if err != nil {
					t.Fatal(err)
				}
				read := &metav1.PartialObjectMetadata{}
				if err := json.Unmarshal(raw, read); err != nil {
					t.Fatal(err)
				}
				return object(with, read.ResourceVersion)
			}
			send := func(what string, request func() *rest.Request, body []byte, want string) {
				t.Helper()
				for _, dry := range []bool{true, false} {
					call := request().Namespace(namespace).Resource(test.resource).Body(body)
					if dry {
						call.Param("dryRun", "All")
					}
					if err := call.Do(t.Context()).Error(); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					if got := heard.take(); !strings.HasPrefix(got, want) || want == "" && got != "" || strings.Contains(got, "\n") {
						t.Errorf("%s, dry run %v: warnings %q, want %q", what, dry, got, want)
					}
				}
			}
			put := func() *rest.Request { return api.Put().Name(name) }
			patch := func() *rest.Request { return api.Patch(types.MergePatchType).Name(name) }
			apply := func() *rest.Request {
				return api.Patch(types.ApplyYAMLPatchType).Name(name).Param("fieldManager", "test").Param("force", "true")
			}
			without := []byte(`{"spec":{"persistentContents":null,"networkPolicy":null}}`)
			with, err := json.Marshal(map[string]any{"spec": test.spec})
			if err != nil {
				t.Fatal(err)
			}
			send("create", api.Post, object(true, ""), test.want)
			send("replace without", put, current(false), "")
			send("replace", put, current(true), test.want)
			send("patch without", patch, without, "")
			send("apply", apply, object(true, ""), test.want)
			send("patch without", patch, without, "")
			send("patch", patch, with, test.want)
		})
	}
}
