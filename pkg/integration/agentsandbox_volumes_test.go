// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// agentVolume is a volume claim template of agent-sandbox.
func agentVolume(name, size string) any {
	return map[string]any{
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"accessModes": []any{"ReadWriteOnce"},
			"resources":   map[string]any{"requests": map[string]any{"storage": size}},
		},
	}
}

// TestAgentVolumes: what volumes a sandbox of a pool's claim has by the policy of the
// template, none of which a container mounts.
func TestAgentVolumes(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	refused := []string{"VolumeClaimTemplatesError"}
	workspace := []any{agentVolume("workspace", "1Gi")}
	for name, tc := range map[string]struct {
		policy       string
		template, of []any // volumes of the template, and of the claim
		want         []string
	}{
		"disallowed":                  {policy: "Disallowed", of: []any{agentVolume("more", "2Gi")}, want: refused},
		"no policy":                   {of: []any{agentVolume("more", "2Gi")}, want: refused},
		"of the template":             {policy: "Disallowed", template: workspace, want: []string{"workspace 1Gi"}},
		"allowed":                     {policy: "Allowed", template: workspace, of: []any{agentVolume("more", "2Gi")}, want: []string{"workspace 1Gi", "more 2Gi"}},
		"allowed, one of that name":   {policy: "Allowed", template: workspace, of: []any{agentVolume("workspace", "2Gi")}, want: refused},
		"overrides":                   {policy: "Overrides", template: workspace, of: []any{agentVolume("more", "2Gi")}, want: []string{"workspace 1Gi", "more 2Gi"}},
		"overrides, one of that name": {policy: "Overrides", template: workspace, of: []any{agentVolume("workspace", "3Gi")}, want: []string{"workspace 3Gi"}},
		"no name":                     {policy: "Allowed", of: []any{agentVolume("", "2Gi")}, want: refused},
		"no size":                     {policy: "Allowed", of: []any{map[string]any{"metadata": map[string]any{"name": "more"}, "spec": map[string]any{}}}, want: refused},
		"one name twice":              {policy: "Allowed", of: []any{agentVolume("more", "2Gi"), agentVolume("more", "2Gi")}, want: refused},
		"one name twice, overriding":  {policy: "Overrides", of: []any{agentVolume("more", "2Gi"), agentVolume("more", "2Gi")}, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			name := strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", "")
			spec := map[string]any{
				"podTemplate":             map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "pause"}}}},
				"networkPolicyManagement": "Unmanaged",
			}
			if tc.policy != "" {
				spec["volumeClaimTemplatesPolicy"] = tc.policy
			}
			if tc.template != nil {
				spec["volumeClaimTemplates"] = tc.template
			}
			createIn(t, agent(t, s, agentTemplates), "SandboxTemplate", name, spec)
			createIn(t, agent(t, s, agentTemplates.GroupVersion().WithResource("sandboxwarmpools")), "SandboxWarmPool", name, map[string]any{
				"replicas": int64(0), "sandboxTemplateRef": map[string]any{"name": name},
			})
			claimSpec := map[string]any{"warmPoolRef": map[string]any{"name": name}}
			if tc.of != nil {
				claimSpec["volumeClaimTemplates"] = tc.of
			}
			got := []string{agentReady(t, createAgent(t, s, newAgentClaim(name, claimSpec))).Reason}
			if sandbox := boxNamed(t, s, name); sandbox != nil {
				got = nil
				volumes, _, _ := unstructured.NestedSlice(getAgent(t, s, agentSandboxes, name).Object, "spec", "volumeClaimTemplates")
				for _, volume := range volumes {
					size, _, _ := unstructured.NestedString(volume.(map[string]any), "spec", "resources", "requests", "storage")
					of, _, _ := unstructured.NestedString(volume.(map[string]any), "metadata", "name")
					got = append(got, fmt.Sprintf("%s %s", of, size))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// createIn creates an object of agent-sandbox.
func createIn(t *testing.T, client dynamic.ResourceInterface, kind, name string, spec map[string]any) *unstructured.Unstructured {
	t.Helper()
	made, err := client.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": agentClaims.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating %s %s: %v", kind, name, err)
	}
	return made
}
