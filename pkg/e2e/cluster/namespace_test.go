// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestNamespaceDeleted deletes a namespace with everything of ours in it, also
// claims that wait and claims that have sandboxes made.
func TestNamespaceDeleted(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillNamespace(t, ns)

	c.deleteNamespace(t, ns)
	c.awaitNamespaceGone(t, ns)
}

// TestNamespaceDeletedWhileDown deletes a namespace while our servers are down.
// It is unknown what is in it then, so it stays; once they are back it goes,
// without anybody's help.
func TestNamespaceDeletedWhileDown(t *testing.T) {
	c, ns := admin(t), namespace(t)
	c.fillNamespace(t, ns)
	for _, server := range sandlot.APIServers() {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	back := false
	start := func(ctx context.Context) {
		for _, server := range sandlot.APIServers() {
			if err := server.Start(ctx); err != nil {
				t.Error(err)
			}
		}
		back = true
	}
	defer func() {
		if !back {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), expect.Patience)
			defer cancel()
			start(ctx)
		}
	}()

	c.deleteNamespace(t, ns)

	// Pods are the cluster's own, and go. That the rest could not be looked at is
	// said in the namespace.
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		namespace, err := c.kube.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("the namespace went with what nobody could look at: %v", err)
		}
		for _, condition := range namespace.Status.Conditions {
			if condition.Type == corev1.NamespaceDeletionDiscoveryFailure && condition.Status == corev1.ConditionTrue {
				return nil
			}
			if condition.Type == corev1.NamespaceDeletionContentFailure && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("namespace %s says %+v", ns, namespace.Status)
	})
	start(t.Context())
	c.awaitNamespaceGone(t, ns)
}

// fillNamespace puts objects of all our kinds into a namespace, in all the states
// in which they may be for long.
func (c *clients) fillNamespace(t testing.TB, ns string) {
	t.Helper()
	expect.FilledPool(t, c, ns, 2)
	c.claim(t, ns, builders.Claim("retains", 1))
	expect.FullPool(t, c, ns, "pool", 2)
	owning := builders.Claim("owns", 1)
	owning.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
	c.claim(t, ns, owning)

	waiting := builders.Claim("waits", 100)
	waiting.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Hour}
	unstocked := builders.Claim("no-set", 1)
	unstocked.Spec.TemplateName = "not-there"
	unstocked.Spec.ClaimTimeout = waiting.Spec.ClaimTimeout
	starting := builders.Claim("makes", 5)
	starting.Spec.CreateOnNoStock = new(true)
	for _, claim := range []*v1alpha1.SandboxClaim{unstocked, starting, waiting} {
		if _, err := c.SandboxClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatalf("creating claim %s: %v", claim.Name, err)
		}
	}
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "template"}}
	template.Spec.Template = builders.Set("", 0).Spec.Template
	if _, err := c.SandboxTemplates(ns).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Pools of templates, a sandbox that is being resized, and one without a set.
	c.makeReferring(t, ns, "referring", "template", "", 1)
	c.makeTemplate(t, ns, "sized", of(annotated(fourCores, controlplane.ResizeNever)))
	c.makeReferring(t, ns, "halved", "sized", half, 2)
	c.makeTemplate(t, ns, "setless", of(sized(twoCores)))
	resizing, setless := claimOf("resizing", "sized", 1), claimOf("setless", "setless", 1)
	setless.Spec.CreateOnNoStock = new(true)
	for _, claim := range []*v1alpha1.SandboxClaim{resizing, setless} {
		if _, err := c.SandboxClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatalf("creating claim %s: %v", claim.Name, err)
		}
	}
	alone := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "alone"}}
	alone.Spec.Template = builders.Set("", 0).Spec.Template
	if _, err := c.Sandboxes(ns).Create(t.Context(), alone, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *clients) deleteNamespace(t testing.TB, ns string) {
	t.Helper()
	if err := c.kube.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitNamespaceGone waits until a namespace is gone, and requires that nothing
// of ours is left in it.
func (c *clients) awaitNamespaceGone(t testing.TB, ns string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		namespace, err := c.kube.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if gone := gone(err); gone != nil {
			return fmt.Errorf("namespace %s: %w: %+v", ns, gone, namespace.Status)
		}
		return nil
	})
	left := map[string]int{}
	count := func(kind string, n int, err error) {
		if err != nil {
			t.Fatal(err)
		}
		left[kind] = n
	}
	claims, err := c.SandboxClaims(ns).List(t.Context(), metav1.ListOptions{})
	count("claims", len(claims.Items), err)
	sets, err := c.SandboxSets(ns).List(t.Context(), metav1.ListOptions{})
	count("sets", len(sets.Items), err)
	sandboxes, err := c.Sandboxes(ns).List(t.Context(), metav1.ListOptions{})
	count("sandboxes", len(sandboxes.Items), err)
	templates, err := c.SandboxTemplates(ns).List(t.Context(), metav1.ListOptions{})
	count("templates", len(templates.Items), err)
	pods, err := c.kube.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	count("pods", len(pods.Items), err)
	for kind, n := range left {
		if n > 0 {
			t.Errorf("%d %s are left in the namespace that is gone", n, kind)
		}
	}
}
