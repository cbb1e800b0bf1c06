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
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

var agentTemplates = schema.GroupVersionResource{Group: v1alpha1.ExtensionsGroup, Version: "v1beta1", Resource: "sandboxtemplates"}

// TestAgentEnvIsForFreshSandboxes: no warm pod has what a claim adds, so a sandbox is made
// for it, in whatever words it names its pool, and when it gets another one later.
func TestAgentEnvIsForFreshSandboxes(t *testing.T) {
	s := agentPool(t, 3, withSyncWindow(time.Millisecond))
	allowed := []byte(`{"spec":{"envVarsInjectionPolicy":"Allowed"}}`)
	if _, err := agent(t, s, agentTemplates).Patch(t.Context(), "base", types.MergePatchType, allowed, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	template, pool := map[string]any{"name": "base"}, map[string]any{"name": "pool"}
	for name, source := range map[string]map[string]any{
		"any":   {"sandboxTemplateRef": template},
		"words": {"sandboxTemplateRef": template, "warmpool": "default"},
		"named": {"sandboxTemplateRef": template, "warmpool": "pool"},
		"both":  {"sandboxTemplateRef": template, "warmPoolRef": pool},
		"pool":  {"warmPoolRef": pool},
	} {
		source["env"] = []any{map[string]any{"name": "A", "value": "b"}}
		createAgent(t, s, newAgentClaim(name, source))
		hasEnv(t, s, name)
	}

	claim := createAgent(t, s, newAgentClaim("edited", nil))
	patchAgentClaim(t, s, "edited", `{"spec":{"env":[{"name":"A","value":"b"}]}}`)
	if err := agent(t, s, agentSandboxes).Delete(t.Context(), sandboxOf(claim), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	hasEnv(t, s, "edited")
}

// TestAgentEnvOfAnAbsentContainer: the template may be changed to have it, so clients of
// agent-sandbox wait, and do not give up as with what is not allowed.
func TestAgentEnvOfAnAbsentContainer(t *testing.T) {
	s := agentPool(t, 1)
	allowed := []byte(`{"spec":{"envVarsInjectionPolicy":"Allowed"}}`)
	if _, err := agent(t, s, agentTemplates).Patch(t.Context(), "base", types.MergePatchType, allowed, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	createAgent(t, s, newAgentClaim("claim", map[string]any{"env": []any{map[string]any{"name": "A", "value": "b", "containerName": "absent"}}}))
	within(t, func() bool {
		ready := agentReady(t, getAgent(t, s, agentClaims, "claim"))
		return ready.Reason == "ReconcilerError" && strings.Contains(ready.Message, "containerName")
	}, "the claim does not say that its container is absent")
}

// TestAgentEnvIsTakenAway: a claim that adds nothing any more is served by the pool.
func TestAgentEnvIsTakenAway(t *testing.T) {
	s := agentPool(t, 1, withSyncWindow(time.Millisecond))
	claim := createAgent(t, s, newAgentClaim("claim", map[string]any{"env": []any{map[string]any{"name": "A", "value": "b"}}}))
	if ready := agentReady(t, claim); ready.Reason != v1alpha1.ReasonEnvVarsInjectionRejected {
		t.Fatalf("the template takes no env, and the claim says %v", ready)
	}
	patchAgentClaim(t, s, "claim", `{"spec":{"env":null}}`)
	within(t, func() bool { return sandboxOf(getAgent(t, s, agentClaims, "claim")) == "pool-000000" }, "the claim does not get what the pool has")
}

// hasEnv waits until a claim has a sandbox of its own, whose container has what it adds.
func hasEnv(t *testing.T, s *testutil.Server, claim string) {
	t.Helper()
	within(t, func() bool { return sandboxOf(getAgent(t, s, agentClaims, claim)) == claim },
		fmt.Sprintf("no sandbox is made for the claim %s", claim))
	containers, _, err := unstructured.NestedSlice(getAgent(t, s, agentSandboxes, claim).Object, "spec", "podTemplate", "spec", "containers")
	if err != nil || fmt.Sprint(containers[0].(map[string]any)["env"]) != "[map[name:A value:b]]" {
		t.Errorf("%s: the sandbox has %v (%v)", claim, containers, err)
	}
}

func patchAgentClaim(t *testing.T, s *testutil.Server, name, patch string) {
	t.Helper()
	if _, err := agent(t, s, agentClaims).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
