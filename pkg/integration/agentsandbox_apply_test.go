// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestAppliedThroughTwoGroups: what a manager applies in our words stays when another one
// applies the same pool in those of agent-sandbox, which cannot say it.
func TestAppliedThroughTwoGroups(t *testing.T) {
	s := start(t)
	s.Template(t, namespace, "base")
	apply := func(resource schema.GroupVersionResource, manager, body string) {
		t.Helper()
		_, err := agent(t, s, resource).Patch(t.Context(), "pool", types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: manager})
		if err != nil {
			t.Fatalf("%s applies: %v", manager, err)
		}
	}
	pools := agentClaims.GroupVersion().WithResource("sandboxwarmpools")
	theirs := func() {
		apply(pools, "theirs", `{"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool", "metadata": {"name": "pool"},
			"spec": {"replicas": 1, "sandboxTemplateRef": {"name": "base"}}}`)
	}
	ours := func(spec string) {
		apply(v1alpha1.SchemeGroupVersion.WithResource("sandboxsets"), "ours",
			`{"apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "metadata": {"name": "pool"}`+spec+`}`)
	}
	check := func(step string, want bool) {
		t.Helper()
		set, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Get(t.Context(), "pool", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if set.Spec.TemplateRef == nil || set.Spec.TemplateRef.Name != "base" || *set.Spec.Replicas != 1 {
			t.Errorf("%s: what theirs applied is %+v", step, set.Spec)
		}
		if have := set.Spec.ScaleStrategy.MaxUnavailable != nil; have != want {
			t.Errorf("%s: what ours applied is there: %t, want %t; managers are %v", step, have, want, set.ManagedFields)
		}
	}
	const strategy = `, "spec": {"scaleStrategy": {"maxUnavailable": 4}}`
	theirs()
	ours(strategy)
	check("first by ours", true)
	theirs()
	check("again by theirs", true)
	ours(strategy)
	check("again by ours", true)
	ours("")
	check("no more by ours", false)
}
