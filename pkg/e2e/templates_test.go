// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestPoolsOfATemplate claims from a pool of full size and from one that is cheaper
// to keep, whose sandboxes get what the template says with the claim, or cannot.
func TestPoolsOfATemplate(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	const ns = "default"
	api := s.Client.AgentsV1alpha1()
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "python"}}
	template.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"main","image":"python:3.14",
		"resources":{"requests":{"cpu":"4","memory":"8Gi"},"limits":{"cpu":"4","memory":"8Gi"}}}]}}`)}
	if _, err := api.SandboxTemplates(ns).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fill := func(name, patch string, replicas int32) {
		set := builders.Set(name, replicas)
		set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "python"}
		if patch != "" {
			set.Spec.Patch = &runtime.RawExtension{Raw: []byte(patch)}
		}
		if _, err := api.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect.FullPool(t, s.Client.AgentsV1alpha1(), ns, name, replicas)
	}
	fill("small", "", 1)
	fill("large", `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"2"}}}]}}`, 3)

	claim := func(name string, replicas int32, warmPool string) *v1alpha1.SandboxClaim {
		wanted := builders.Claim(name, replicas)
		wanted.Spec.TemplateName = ""
		wanted.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: "python"}
		wanted.Spec.WarmPool = warmPool
		wanted.Spec.WaitReadyTimeout = &metav1.Duration{Duration: 2 * time.Minute}
		if _, err := api.SandboxClaims(ns).Create(t.Context(), wanted, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var done *v1alpha1.SandboxClaim
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			var err error
			if done, err = api.SandboxClaims(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
				return err
			}
			if done.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || done.Status.ClaimedReplicas != replicas {
				return fmt.Errorf("claim %s: %+v", name, done.Status)
			}
			return nil
		})
		return done
	}
	resized := func(c *v1alpha1.SandboxClaim, status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		got := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
		if got == nil || got.Status != status || got.Reason != reason || message != "" && got.Message != message {
			t.Errorf("claim %s says %+v", c.Name, got)
		}
	}
	resized(claim("story", 3, ""), metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "Resized 2 sandboxes")

	// Of another class, which no pod can change to.
	fill("burst", `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}]}}`, 1)
	resized(claim("burst", 1, "burst"), metav1.ConditionFalse, v1alpha1.ReasonFailed, "")
}
