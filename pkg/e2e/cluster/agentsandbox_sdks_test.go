// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestAgentSandboxPythonSDK (trap 1) makes the calls of the Python SDK, as a user with the right of
// the role for it: it does not look at the answer to its create, but watches from there.
func TestAgentSandboxPythonSDK(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 2)
	user := "python-" + ns
	grant(t, ns, "sandlot-agent-sandbox-claimer", user)
	sdk := as(t, user)
	claim := newAgentClaim("sandbox-claim-0a1b2c3d")
	claim.SetLabels(map[string]string{v1alpha1.AgentLabelCreatedBy: "python-client"})
	claim.SetAnnotations(map[string]string{v1alpha1.AgentKeyPrefix + "client-first-requested-at": "2026-01-02T03:04:05.678901Z"})
	claims, sandboxes := sdk.agent(t, agentClaims, ns), sdk.agent(t, agentSandboxes, ns)
	var created *unstructured.Unstructured
	expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) { // a role takes a moment to be known
		created, err = claims.Create(ctx, claim, metav1.CreateOptions{})
		return err
	})

	bound := sdk.watchAgent(t, agentClaims, ns, claim.GetName(), created.GetResourceVersion(), isAgentBound)

	name := text(bound, "status", "sandbox", "name")
	sandbox, err := sandboxes.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := isAgentReady(sandbox); err != nil {
		t.Error(err)
	}
	if pod := sandbox.GetAnnotations()[v1alpha1.AgentAnnotationPodName]; pod != name {
		t.Errorf("the sandbox %s says that its pod is %q", name, pod)
	}
	if got, want := text(sandbox, "status", "selector"), v1alpha1.AgentLabelNameHash+"="+v1alpha1.NameHash(name); got != want {
		t.Errorf("the selector of the sandbox is %q, want %q", got, want)
	}
	if ips, _, _ := unstructured.NestedStringSlice(sandbox.Object, "status", "podIPs"); len(ips) == 0 {
		t.Error("the sandbox has no addresses")
	}
	patched := sdk.patchAgent(t, agentClaims, ns, claim.GetName(), `{"spec": {"lifecycle": {"shutdownTime": "2099-01-01T00:00:00Z"}}}`)
	if got := text(patched, "spec", "lifecycle", "shutdownPolicy"); got != "Retain" {
		t.Errorf("the policy of a lifecycle is %q", got)
	}
	list, err := claims.List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.AgentLabelCreatedBy + "=python-client"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].GetUID() != created.GetUID() {
		t.Errorf("by its label %d claims are found", len(list.Items))
	}
	if err := claims.Delete(t.Context(), claim.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(t.Context(), claim.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("deleted again: %v", err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := sandboxes.Get(ctx, name, metav1.GetOptions{})
		return gone(err)
	})
	c.awaitAgentPool(t, ns, 2)
}

// TestAgentSandboxGoSDK makes the calls of the Go SDK.
func TestAgentSandboxGoSDK(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 2)
	claim := newAgentClaim("")
	claim.SetName("")
	claim.SetGenerateName("sandbox-claim-")
	claim.SetLabels(map[string]string{v1alpha1.AgentLabelCreatedBy: "go-client"})
	made := c.makeAgent(t, agentClaims, ns, claim)
	c.getAgent(t, agentClaims, ns, made.GetName())

	bound := c.watchAgent(t, agentClaims, ns, made.GetName(), "", func(claim *unstructured.Unstructured) error {
		if text(claim, "status", "sandbox", "name") == "" {
			return errors.New("it names no sandbox")
		}
		return nil
	})

	name := text(bound, "status", "sandbox", "name")
	list, err := c.agent(t, agentSandboxes, ns).List(t.Context(), metav1.ListOptions{FieldSelector: metav1.ObjectNameField + "=" + name})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d sandboxes have the name %s", len(list.Items), name)
	}
	// From the list on there may be nothing to see any more: then it was ready in the list.
	sandbox := &list.Items[0]
	if isAgentReady(sandbox) != nil {
		sandbox = c.watchAgent(t, agentSandboxes, ns, name, list.GetResourceVersion(), isAgentReady)
	}
	if pod := sandbox.GetAnnotations()[v1alpha1.AgentAnnotationPodName]; pod == "" {
		t.Error("the sandbox does not name its pod")
	} else {
		c.pod(t, ns, pod)
	}
	if err := c.agent(t, agentClaims, ns).Delete(t.Context(), made.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestAgentSandboxRouter (trap 6) watches pods as the router does, which routes to a pod by the name
// of its sandbox when that has left its pool: a pool's pod is not routed to, and a claimed
// one soon is.
func TestAgentSandboxRouter(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 1)
	pods := c.podsOf(t, ns, v1alpha1.AgentLabelNameHash)
	if len(pods) != 1 {
		t.Fatalf("%d pods have the label of the router", len(pods))
	}
	pooled := &pods[0]
	if got, want := pooled.Labels[v1alpha1.AgentLabelPool], v1alpha1.NameHash("pool"); got != want {
		t.Errorf("the pod of a pool has the label %q, want %q", got, want)
	}
	if err := isRouted(pooled); err == nil {
		t.Errorf("the pod of a pool is routed to: %v", pooled.ObjectMeta)
	}
	list, err := c.kube.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.AgentLabelNameHash})
	if err != nil {
		t.Fatal(err)
	}

	name := text(c.agentBound(t, ns, newAgentClaim("claim")), "status", "sandbox", "name")

	if name != pooled.Name {
		t.Fatalf("the claim has %s, and the pool had %s", name, pooled.Name)
	}
	watched, err := c.kube.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{
		LabelSelector: v1alpha1.AgentLabelNameHash + "=" + v1alpha1.NameHash(name), ResourceVersion: list.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	last := errors.New("no event yet")
	for last != nil {
		select {
		case event := <-watched.ResultChan():
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				t.Fatalf("the watch of pods ended: %v; at last: %v", event, last)
			}
			last = isRouted(pod)
		case <-ctx.Done():
			t.Fatalf("the pod of a claimed sandbox is not routed to: %v", last)
		}
	}
}

// isRouted is the rule of the router.
func isRouted(pod *corev1.Pod) error {
	if _, pooled := pod.Labels[v1alpha1.AgentLabelPool]; pooled {
		return errors.New("it is in a pool")
	}
	if got, want := pod.Labels[v1alpha1.AgentLabelNameHash], v1alpha1.NameHash(pod.Name); got != want {
		return fmt.Errorf("its label says %q, want %q", got, want)
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return errors.New("it has no owner")
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil || gv.Group != v1alpha1.AgentsGroup || owner.Kind != "Sandbox" || owner.Name != pod.Name {
		return fmt.Errorf("its owner is %v", owner)
	}
	return nil
}

// watchAgent watches one object from a resourceVersion until it is as it should be.
func (c *clients) watchAgent(t testing.TB, resource schema.GroupVersionResource, namespace, name, resourceVersion string, check func(*unstructured.Unstructured) error) *unstructured.Unstructured {
	t.Helper()
	watched, err := c.agent(t, resource, namespace).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: metav1.ObjectNameField + "=" + name, ResourceVersion: resourceVersion,
	})
	if err != nil {
		t.Fatalf("watching %s %s from %q: %v", resource.Resource, name, resourceVersion, err)
	}
	defer watched.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	last := errors.New("no event yet")
	for {
		select {
		case event, open := <-watched.ResultChan():
			object, ok := event.Object.(*unstructured.Unstructured)
			if !open || !ok || event.Type == watch.Error {
				t.Fatalf("the watch of %s %s ended: %v; at last: %v", resource.Resource, name, event, last)
			}
			if last = check(object); last == nil {
				return object
			}
		case <-ctx.Done():
			t.Fatalf("watching %s %s from %q: %v", resource.Resource, name, resourceVersion, last)
		}
	}
}
