// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestAgentSandboxWrites counts what a warm claim of agent-sandbox costs: its create, and
// one patch of the pod. The Service and the volumes of its sandbox are as they should be
// from birth.
func TestAgentSandboxWrites(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	template := newAgentTemplate()
	if err := unstructured.SetNestedField(template.Object, true, "spec", "service"); err != nil {
		t.Fatal(err)
	}
	c.makeAgent(t, agentTemplates, ns, template)
	c.makeAgent(t, agentPools, ns, newAgentPool("pool", 2))
	c.awaitAgentPool(t, ns, 2)
	var pooled []string
	for _, name := range c.unused(t, ns) {
		c.awaitAgent(t, agentSandboxes, ns, name, isAgentCondition("Ready", "True DependenciesReady: Pod is Ready; Service Exists"))
		pooled = append(pooled, name)
	}
	cluster, ours := []string{plane.AuditLog()}, ownLogs()
	all := func(name string) map[write]int {
		counts := writesOf(t, ns, name, cluster)
		maps.DeleteFunc(counts, func(w write, _ int) bool { return w.resource != "pods" && w.resource != "services" })
		for w, n := range writesOf(t, ns, name, ours) {
			counts[w] += n
		}
		return counts
	}
	before := map[string]map[write]int{}
	for _, name := range pooled {
		before[name] = all(name)
	}

	claim := c.agentBound(t, ns, newAgentClaim("claim"))
	name := text(claim, "status", "sandbox", "name")
	if before[name] == nil {
		t.Fatalf("the claim has %s, and the pool had %q", name, pooled)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		pod, err := c.kube.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return isRouted(pod)
	})
	c.awaitAgentPool(t, ns, 2)             // by then all that the claim moves has moved
	for _, name := range c.unused(t, ns) { // whose Services come a moment later
		c.awaitAgent(t, agentSandboxes, ns, name, isAgentCondition("Ready", "True DependenciesReady: Pod is Ready; Service Exists"))
	}
	c.claimed(t, ns, "second")

	for what, want := range map[string]map[write]int{
		name:    {{"patch", "pods"}: 1},
		"claim": {{"create", "sandboxclaims"}: 1},
	} {
		got := all(what)
		for w, n := range before[what] {
			if got[w] -= n; got[w] == 0 {
				delete(got, w)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("writes to %s after the claim: %v, want %v", what, got, want)
		}
	}
	if is := c.getAgent(t, agentClaims, ns, "claim"); is.GetResourceVersion() != claim.GetResourceVersion() {
		t.Errorf("the claim was written once more: %v", is.Object["status"])
	}
	service, err := c.kube.CoreV1().Services(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if owner := metav1.GetControllerOf(service); owner == nil || owner.Kind != "Sandbox" || owner.UID != c.getAgent(t, agentSandboxes, ns, name).GetUID() {
		t.Errorf("the Service belongs to %v", service.OwnerReferences)
	}
}

// claimed makes a claim, and waits until routers send to its pod: the controllers have done
// what came before.
func (c *clients) claimed(t testing.TB, ns, name string) {
	t.Helper()
	sandbox := text(c.agentBound(t, ns, newAgentClaim(name)), "status", "sandbox", "name")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		pod, err := c.kube.CoreV1().Pods(ns).Get(ctx, sandbox, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := isRouted(pod); err != nil {
			return fmt.Errorf("pod %s: %w", sandbox, err)
		}
		return nil
	})
}
