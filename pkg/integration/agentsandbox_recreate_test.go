// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestAgentRecreate: a pool that replaces its sandboxes at once when their template changes
// gives away none of the former template, also before its controller has deleted them. One
// that does so when they are replenished continues with what it has.
func TestAgentRecreate(t *testing.T) {
	for update, goesOn := range map[v1alpha1.SandboxSetUpdateType]bool{v1alpha1.SetUpdateRecreate: false, v1alpha1.SetUpdateOnReplenish: true} {
		t.Run(string(update), func(t *testing.T) {
			s := agentPool(t, 5, withSyncWindow(time.Millisecond))
			patch := func(resource schema.GroupVersionResource, name, patch string) {
				t.Helper()
				if _, err := agent(t, s, resource).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			templateOf := func(metadata, image string) {
				t.Helper()
				patch(agentTemplates, "base", fmt.Sprintf(`{"spec":{"podTemplate":{"metadata":%s,"spec":{"containers":[{"name":"main","image":%q}]}}}}`, metadata, image))
			}
			patch(agentTemplates.GroupVersion().WithResource("sandboxwarmpools"), "pool", fmt.Sprintf(`{"spec":{"updateStrategy":{"type":%q}}}`, update))
			image, _, err := unstructured.NestedSlice(getAgent(t, s, agentTemplates, "base").Object, "spec", "podTemplate", "spec", "containers")
			if err != nil {
				t.Fatal(err)
			}
			before := image[0].(map[string]any)["image"].(string)
			claims := 0
			// The server hears of a change a moment later.
			served := func(byPool bool) {
				t.Helper()
				within(t, func() bool {
					claims++
					name := fmt.Sprintf("claim-%d", claims)
					createAgent(t, s, newAgentClaim(name, nil))
					defer func() {
						if err := agent(t, s, agentClaims).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
							t.Error(err)
						}
					}()
					sandbox := ""
					within(t, func() bool { sandbox = sandboxOf(getAgent(t, s, agentClaims, name)); return sandbox != "" }, "the claim has no sandbox")
					return strings.HasPrefix(sandbox, "pool-") == byPool
				}, fmt.Sprintf("it is not so that the pool serves: %t", byPool))
			}
			served(true)
			templateOf(`{"labels":{"more":"metadata"}}`, before)
			served(true)
			templateOf(`{}`, "another:2")
			served(goesOn)
			templateOf(`{}`, before)
			served(true)
		})
	}
}
