// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
)

// TestCheckApplied: what server-side apply cannot merge is named, in the words of each group.
func TestCheckApplied(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	for name, tc := range map[string]struct{ template, claims, want string }{
		"good": {template: `{"spec":{"containers":[{"name":"a","ports":[{"containerPort":1},{"containerPort":1,"protocol":"UDP"}]},{"name":"b"}]}}`},
		"twice": {template: `{"spec":{"containers":[{"name":"a"},{"name":"a"}]}}`,
			want: `.spec.containers[1].name: Duplicate value: "a"`},
		"a port twice, by default": {template: `{"spec":{"containers":[{"name":"a","ports":[{"containerPort":1},{"containerPort":1,"protocol":"TCP"}]}]}}`,
			want: `.spec.containers[0].ports[1].containerPort: Duplicate value: 1`},
		"in an ephemeral container": {template: `{"spec":{"ephemeralContainers":[{"name":"a","env":[{"name":"x"},{"name":"x"}]}]}}`,
			want: `.spec.ephemeralContainers[0].env[1].name: Duplicate value: "x"`},
		"a finalizer twice": {template: `{"metadata":{"finalizers":["a/b","a/b"]}}`, want: `.metadata.finalizers[1]: Duplicate value: "a/b"`},
		"null":              {template: `{"spec":{"volumes":[null]}}`, want: `.spec.volumes[0]: Required value: must not be null`},
		"no list":           {template: `{"spec":{"containers":"x"}}`, want: `.spec.containers: Invalid value: must be a list`},
		"a secret": {template: `{"spec":{"containers":[{"name":"a","env":[{"name":"x","value":12345}]}]}}`,
			want: `.spec.containers[0].env[0].value: Invalid value: must be a string`},
		"a claim": {claims: `[{"metadata":{"name":5}}]`, want: `spec.volumeClaimTemplates[0].metadata.name: Invalid value: must be a string`},
	} {
		for _, of := range []struct {
			kind  schema.GroupVersionKind
			field string
		}{
			{schema.GroupVersionKind{Group: "agents.kruise.io", Version: "v1alpha1", Kind: "Sandbox"}, "template"},
			{schema.GroupVersionKind{Group: "agents.kruise.io", Version: "v1alpha1", Kind: "SandboxSet"}, "template"},
			{schema.GroupVersionKind{Group: "agents.x-k8s.io", Version: "v1beta1", Kind: "Sandbox"}, "podTemplate"},
			{schema.GroupVersionKind{Group: "extensions.agents.x-k8s.io", Version: "v1alpha1", Kind: "SandboxTemplate"}, "podTemplate"},
		} {
			body, want := `{"spec":{"`+of.field+`":`+tc.template+`}}`, "spec."+of.field+tc.want
			if tc.claims != "" {
				body, want = `{"spec":{"volumeClaimTemplates":`+tc.claims+`}}`, tc.want
			}
			got := ""
			if err := checkApplied(scheme, []byte(body), of.kind); err != nil {
				got = err.Error()
			}
			if tc.want == "" {
				want = ""
			}
			if got != want {
				t.Errorf("%s of %s: %q, want %q", name, of.kind, got, want)
			}
		}
	}
}
