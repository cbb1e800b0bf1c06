// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// within waits until something holds, and says otherwise what does not.
func within(t *testing.T, holds func() bool, otherwise string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if holds() {
			return nil
		}
		return errors.New(otherwise)
	})
}

// TestAgentNameIsTaken: a sandbox that is made for a claim has its name and no other. A
// claim whose name another sandbox has says so, and gets one when the name is free.
func TestAgentNameIsTaken(t *testing.T) {
	s := agentPool(t, 0, withSyncWindow(time.Millisecond))
	other := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": agentSandboxes.GroupVersion().String(), "kind": "Sandbox", "metadata": map[string]any{"name": "mine"},
		"spec": map[string]any{"podTemplate": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "main", "image": "busybox"}}}}},
	}}
	if _, err := agent(t, s, agentSandboxes).Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	createAgent(t, s, newAgentClaim("mine", nil))
	within(t, func() bool {
		ready := agentReady(t, getAgent(t, s, agentClaims, "mine"))
		return ready.Reason == "ReconcilerError" && strings.Contains(ready.Message, "another name")
	}, "the claim does not say that its name is another's")
	if name := sandboxOf(getAgent(t, s, agentClaims, "mine")); name != "" {
		t.Errorf("it has sandbox %q, which is another's", name)
	}
	if err := agent(t, s, agentSandboxes).Delete(t.Context(), "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	within(t, func() bool { return sandboxOf(getAgent(t, s, agentClaims, "mine")) == "mine" }, "the name is free, and the claim gets no sandbox")
	sb := getAgent(t, s, agentSandboxes, "mine")
	if launch := sb.GetLabels()[v1alpha1.AgentLabelLaunchType]; launch != v1alpha1.AgentLaunchCold || !metav1.IsControlledBy(sb, getAgent(t, s, agentClaims, "mine")) {
		t.Errorf("launch type %q, owners %v", launch, sb.GetOwnerReferences())
	}
}

// TestAgentMetadataEdits: what a claim may not bring its pod it does not bring by an edit
// either, once it has its sandbox.
func TestAgentMetadataEdits(t *testing.T) {
	s := agentPool(t, 1)
	name := sandboxOf(createAgent(t, s, newAgentClaim("mine", nil)))
	edit := func(labels map[string]any) {
		t.Helper()
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"additionalPodMetadata": map[string]any{"labels": labels}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := agent(t, s, agentClaims).Patch(t.Context(), "mine", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	labels := func() map[string]string {
		t.Helper()
		podLabels, _, err := unstructured.NestedStringMap(getAgent(t, s, agentSandboxes, name).Object, "spec", "podTemplate", "metadata", "labels")
		if err != nil {
			t.Fatal(err)
		}
		return podLabels
	}
	edit(map[string]any{"team": "a", "sandbox.users.io/team": "a"})
	within(t, func() bool {
		claim, err := s.Client.AgentsV1alpha1().SandboxClaims(namespace).Get(t.Context(), "mine", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synced := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionMetadataSynced)
		return synced != nil && synced.Status == metav1.ConditionFalse && synced.Reason == v1alpha1.ReasonInvalidMetadata
	}, "the claim does not say that its metadata is not taken")
	within(t, func() bool {
		ready := agentReady(t, getAgent(t, s, agentClaims, "mine"))
		return ready.Status == metav1.ConditionFalse && ready.Reason == v1alpha1.ReasonInvalidMetadata &&
			strings.HasPrefix(ready.Message, "invalid additionalPodMetadata: ")
	}, "Ready does not say that the metadata of the claim is not taken")
	if has := sandboxOf(getAgent(t, s, agentClaims, "mine")); has != name {
		t.Errorf("it has sandbox %q, and had %q", has, name)
	}
	if got := labels(); got["team"] != "" || got["sandbox.users.io/team"] != "" {
		t.Errorf("the pod has %v", got)
	}
	edit(map[string]any{"team": nil, "sandbox.users.io/team": "a"})
	within(t, func() bool { return labels()["sandbox.users.io/team"] == "a" }, "the pod does not get what it may have")
	within(t, func() bool { return agentReady(t, getAgent(t, s, agentClaims, "mine")).Status == metav1.ConditionTrue },
		"the claim is not Ready again")
}
