// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestAgentPoolOfAnotherTemplate: a claim that names a pool and a template is taken if the
// pool is of that template, and refused otherwise, also if an edit makes it so.
func TestAgentPoolOfAnotherTemplate(t *testing.T) {
	s := agentPool(t, 1, withSyncWindow(time.Millisecond))
	s.Template(t, namespace, "other")
	both := func(pool, template string) map[string]any {
		return map[string]any{"warmPoolRef": map[string]any{"name": pool}, "sandboxTemplateRef": map[string]any{"name": template}}
	}
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `SandboxClaim.extensions.agents.x-k8s.io`) ||
			!strings.Contains(err.Error(), `spec.warmPoolRef.name: Invalid value: "pool": is not a pool of SandboxTemplate "other"`) {
			t.Errorf("%s: %v, want 422 that names the field", what, err)
		}
	}
	for what, options := range map[string]metav1.CreateOptions{"create": {}, "dry run": {DryRun: []string{metav1.DryRunAll}}} {
		_, err := agent(t, s, agentClaims).Create(t.Context(), newAgentClaim("refused", both("pool", "other")), options)
		refused(what, err)
	}
	_, err := agent(t, s, agentClaims).Apply(t.Context(), "refused", newAgentClaim("refused", both("pool", "other")), metav1.ApplyOptions{FieldManager: "m"})
	refused("apply", err)
	if _, err := agent(t, s, agentClaims).Get(t.Context(), "refused", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a refused claim is there: %v", err)
	}

	// A pool that may come to be is waited for.
	if ready := agentReady(t, createAgent(t, s, newAgentClaim("early", both("absent", "base")))); ready.Reason != "WarmPoolNotFound" {
		t.Errorf("without its pool the claim is %+v", ready)
	}
	// The refused ones have left the sandbox to this one.
	if name := sandboxOf(createAgent(t, s, newAgentClaim("mine", both("pool", "base")))); !strings.HasPrefix(name, "pool-") {
		t.Errorf("a claim of the pool and its template has sandbox %q", name)
	}
	patch := func(body string) error {
		_, err := agent(t, s, agentClaims).Patch(t.Context(), "mine", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	refused("edit", patch(`{"spec":{"sandboxTemplateRef":{"name":"other"}}}`))
	if err := patch(`{"spec":{"warmPoolRef":{"name":"absent"}}}`); err != nil {
		t.Errorf("another pool, which may come to be: %v", err)
	}
	if err := patch(`{"spec":{"warmPoolRef":{"name":"pool"}}}`); err != nil {
		t.Errorf("the pool of the template again: %v", err)
	}
	// The pool turns to another template. That is no reason to refuse other edits.
	if _, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Patch(t.Context(), "pool", types.MergePatchType,
		[]byte(`{"spec":{"templateRef":{"name":"other"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := patch(`{"metadata":{"labels":{"a":"b"}},"spec":{"lifecycle":{"shutdownPolicy":"Delete"}}}`); err != nil {
		t.Errorf("an edit of something else: %v", err)
	}
}
