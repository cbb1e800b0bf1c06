// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	agentOver    = `{"spec": {"lifecycle": {"shutdownTime": "2026-01-01T00:00:00Z"}}}`
	agentExpired = "False ClaimExpired: Claim expired. Sandbox cleanup initiated."
)

// isAgentCondition is a check that a condition says "<status> <reason>: <message>" of the
// generation that there is.
func isAgentCondition(kind, want string) func(*unstructured.Unstructured) error {
	return func(object *unstructured.Unstructured) error {
		is := agentCondition(object, kind)
		if is == nil {
			return fmt.Errorf("it has no condition %s", kind)
		}
		if got := fmt.Sprintf("%s %s: %s", is.Status, is.Reason, is.Message); got != want || is.ObservedGeneration != object.GetGeneration() {
			return fmt.Errorf("%s is %q of generation %d, want %q of %d", kind, got, is.ObservedGeneration, want, object.GetGeneration())
		}
		return nil
	}
}

// awaitAgentGone waits until a sandbox and its pod are gone.
func (c *clients) awaitAgentGone(t testing.TB, ns, sandbox string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.agent(t, agentSandboxes, ns).Get(ctx, sandbox, metav1.GetOptions{})
		return gone(err)
	})
	c.awaitNoPod(t, ns, sandbox)
}

// endPod ends a pod, as its kubelet does when its containers have ended.
func (c *clients) endPod(t testing.TB, ns, name string, phase corev1.PodPhase) {
	t.Helper()
	ended := fmt.Appendf(nil, `{"status": {"phase": %q}}`, phase)
	if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), name, types.MergePatchType, ended, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// TestAgentSandboxExpiry: what becomes of claims by each policy of their lifecycle, and
// what they say.
func TestAgentSandboxExpiry(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.awaitAvailable(t)
	c.fillAgentPool(t, ns, 6)
	sandboxOf := map[string]string{} // by claim
	bind := func(name string, lifecycle map[string]any) *unstructured.Unstructured {
		t.Helper()
		claim := newAgentClaim(name)
		if lifecycle != nil {
			claim.Object["spec"].(map[string]any)["lifecycle"] = lifecycle
		}
		bound := c.agentBound(t, ns, claim)
		sandboxOf[name] = text(bound, "status", "sandbox", "name")
		return bound
	}
	const hour = "2099-01-01T00:00:00Z"
	never := bind("never", nil)
	retained := bind("retain", map[string]any{"shutdownTime": hour}) // Retain is the default
	bind("delete", map[string]any{"shutdownTime": hour, "shutdownPolicy": "Delete"})
	bind("foreground", map[string]any{"shutdownTime": hour, "shutdownPolicy": "DeleteForeground"})
	bind("finished", map[string]any{"ttlSecondsAfterFinished": int64(0), "shutdownTime": hour})
	kept := bind("kept", map[string]any{"shutdownPolicy": "Delete"}) // Finished without a TTL keeps everything
	if times := c.getAgent(t, agentSandboxes, ns, sandboxOf["retain"]); text(times, "spec", "shutdownTime") != "" {
		t.Errorf("the shutdownTime of a claim is copied to its sandbox: %v", times.Object["spec"])
	}
	const finalizer = `["example.com/last-words"]`
	c.setFinalizers(t, ns, sandboxOf["delete"], finalizer)
	c.setFinalizers(t, ns, sandboxOf["foreground"], finalizer)

	for _, name := range []string{"retain", "delete", "foreground"} {
		c.patchAgent(t, agentClaims, ns, name, agentOver)
	}
	for _, name := range []string{"finished", "kept"} {
		c.endPod(t, ns, sandboxOf[name], corev1.PodFailed)
	}

	// Retain: the claim stays, without its sandbox.
	c.awaitAgentGone(t, ns, sandboxOf["retain"])
	is := c.awaitAgent(t, agentClaims, ns, "retain", isAgentCondition("Ready", agentExpired))
	if name := text(is, "status", "sandbox", "name"); name != "" || is.GetUID() != retained.GetUID() {
		t.Errorf("the claim that expired has the sandbox %q", name)
	}

	// Delete: the claim goes, whatever holds its sandbox.
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.agent(t, agentClaims, ns).Get(ctx, "delete", metav1.GetOptions{})
		return gone(err)
	})
	c.setFinalizers(t, ns, sandboxOf["delete"], "null")
	c.awaitAgentGone(t, ns, sandboxOf["delete"])

	// DeleteForeground: the claim is there until its sandbox is gone.
	c.awaitAgent(t, agentSandboxes, ns, sandboxOf["foreground"], func(sandbox *unstructured.Unstructured) error {
		if sandbox.GetDeletionTimestamp() == nil {
			return errors.New("it is not being deleted")
		}
		return nil
	})
	waiting := c.getAgent(t, agentClaims, ns, "foreground")
	if ready := agentCondition(waiting, "Ready"); waiting.GetDeletionTimestamp() == nil || ready == nil || ready.Reason != "ClaimExpired" {
		t.Errorf("the claim whose sandbox is not gone is deleted at %v and says %+v", waiting.GetDeletionTimestamp(), ready)
	}
	c.setFinalizers(t, ns, sandboxOf["foreground"], "null")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.agent(t, agentClaims, ns).Get(ctx, "foreground", metav1.GetOptions{})
		return gone(err)
	})
	c.awaitAgentGone(t, ns, sandboxOf["foreground"])

	// A TTL of 0 counts from Finished, which stays.
	ended := c.awaitAgent(t, agentClaims, ns, "finished", isAgentCondition("Ready", agentExpired))
	if done := agentCondition(ended, "Finished"); done == nil || done.Status != metav1.ConditionTrue || done.Reason != "PodFailed" || done.Message != "Pod failed" {
		t.Errorf("Finished of the claim that expired is %+v", done)
	}
	c.awaitAgentGone(t, ns, sandboxOf["finished"])

	// A claim that never had a sandbox expires, too.
	bad := newAgentClaim("bad")
	bad.Object["spec"] = map[string]any{"warmPoolRef": map[string]any{"name": "absent"}, "lifecycle": map[string]any{"shutdownTime": hour}}
	c.makeAgent(t, agentClaims, ns, bad)
	c.patchAgent(t, agentClaims, ns, "bad", agentOver)
	c.awaitAgent(t, agentClaims, ns, "bad", isAgentCondition("Ready", agentExpired))

	// By now the others would have gone.
	c.awaitAgent(t, agentClaims, ns, "kept", isAgentCondition("Ready", "False PodFailed: Pod failed"))
	if name := text(c.getAgent(t, agentClaims, ns, "kept"), "status", "sandbox", "name"); name != sandboxOf["kept"] {
		t.Errorf("claim %s had %s and has %q", kept.GetName(), sandboxOf["kept"], name)
	}
	if still := c.getAgent(t, agentClaims, ns, "never"); still.GetResourceVersion() != never.GetResourceVersion() {
		t.Errorf("a claim without a lifecycle changed to %v", still.Object)
	}

	// A sandbox that expires by itself makes its claim say so, and keeps it.
	c.patchAgent(t, agentSandboxes, ns, sandboxOf["never"], `{"spec": {"shutdownTime": "2026-01-01T00:00:00Z", "shutdownPolicy": "Retain"}}`)
	c.awaitAgent(t, agentClaims, ns, "never", isAgentCondition("Ready",
		"False SandboxExpired: Underlying Sandbox resource has expired independently of the Claim."))
	c.awaitNoPod(t, ns, sandboxOf["never"])
	c.getAgent(t, agentSandboxes, ns, sandboxOf["never"])
}

// TestAgentSandboxClaimDefaultsFreeThePool: clients make claims without a lifecycle from a pool
// of 30, use the sandboxes, and never delete the claims. The namespace has room for 90 pods, so
// without claimDefaults the third round of claims would leave no room for members of the pool.
func TestAgentSandboxClaimDefaultsFreeThePool(t *testing.T) {
	t.Parallel()
	const members, rounds = 30, 3
	c, ns := admin(t), namespace(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "room"}}
	quota.Spec.Hard = corev1.ResourceList{"count/pods": quantity("90")}
	if _, err := c.kube.CoreV1().ResourceQuotas(ns).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.makeAgent(t, agentTemplates, ns, newAgentTemplate())
	pool := newAgentPool("pool", members)
	pool.Object["spec"].(map[string]any)["claimDefaults"] = map[string]any{
		"lifecycle": map[string]any{"shutdownPolicy": "Delete", "ttlSecondsAfterFinished": int64(0)},
	}
	c.makeAgent(t, agentPools, ns, pool)
	for round := range rounds {
		c.awaitAgentPool(t, ns, members)
		for i := range members {
			claim := c.agentBound(t, ns, newAgentClaim(fmt.Sprintf("claim-%d-%d", round, i)))
			c.endPod(t, ns, text(claim, "status", "sandbox", "name"), corev1.PodSucceeded)
		}
	}
	c.awaitAgentPool(t, ns, members)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		left, err := c.agent(t, agentClaims, ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d claims are left, such as %v", len(left.Items), left.Items[0].Object)
		}
		return err
	})
}
