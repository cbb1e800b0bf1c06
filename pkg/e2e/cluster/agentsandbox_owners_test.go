// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestAgentSandboxOwners: what names its owner in the words of either group goes with it.
func TestAgentSandboxOwners(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 1)
	claim := c.agentBound(t, ns, newAgentClaim("claim"))
	sandbox := c.getAgent(t, agentSandboxes, ns, text(claim, "status", "sandbox", "name"))
	owner := metav1.GetControllerOf(sandbox)
	if owner == nil || owner.Kind != "SandboxClaim" || owner.UID != claim.GetUID() ||
		owner.APIVersion != v1alpha1.ExtensionsGroup+"/v1beta1" || len(sandbox.GetOwnerReferences()) != 1 {
		t.Errorf("the sandbox of a claim has the owners %v", sandbox.GetOwnerReferences())
	}
	names := map[string]metav1.OwnerReference{
		"ours-sandbox":   {APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Sandbox", Name: sandbox.GetName(), UID: sandbox.GetUID()},
		"theirs-sandbox": {APIVersion: v1alpha1.AgentsGroup + "/v1beta1", Kind: "Sandbox", Name: sandbox.GetName(), UID: sandbox.GetUID()},
		"older-sandbox":  {APIVersion: v1alpha1.AgentsGroup + "/v1alpha1", Kind: "Sandbox", Name: sandbox.GetName(), UID: sandbox.GetUID()},
		"ours-claim":     {APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxClaim", Name: claim.GetName(), UID: claim.GetUID()},
		"theirs-claim":   {APIVersion: v1alpha1.ExtensionsGroup + "/v1beta1", Kind: "SandboxClaim", Name: claim.GetName(), UID: claim.GetUID()},
	}
	maps := c.kube.CoreV1().ConfigMaps(ns)
	for name, owner := range names {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
		if _, err := maps.Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// What the garbage collector has looked at and kept: the one of an owner that is not
	// there goes, and by then all of the above have been looked at.
	stray := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stray", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: v1alpha1.AgentsGroup + "/v1beta1", Kind: "Sandbox", Name: "absent", UID: "0a1b2c3d"},
	}}}
	if _, err := maps.Create(t.Context(), stray, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := maps.Get(ctx, "stray", metav1.GetOptions{})
		return gone(err)
	})
	for name := range names {
		if _, err := maps.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("what belongs to the living went: %v", err)
		}
	}
	if err := c.agent(t, agentClaims, ns).Delete(t.Context(), "claim", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for name := range names {
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			_, err := maps.Get(ctx, name, metav1.GetOptions{})
			return gone(err)
		})
	}
}

// TestAgentSandboxForeground deletes claims and pools in the foreground, through the one
// group or the other: they go from both when all that is under them is gone.
func TestAgentSandboxForeground(t *testing.T) {
	t.Parallel()
	hub := func(resource string) schema.GroupVersionResource {
		return v1alpha1.SchemeGroupVersion.WithResource(resource)
	}
	const finalizer = "example.com/last-words"
	tests := map[string]struct {
		through, other schema.GroupVersionResource
		name           string
	}{
		"claim-theirs": {agentClaims, hub("sandboxclaims"), "claim"},
		"claim-ours":   {hub("sandboxclaims"), agentClaims, "claim"},
		"pool-theirs":  {agentPools, hub("sandboxsets"), "pool"},
		"pool-ours":    {hub("sandboxsets"), agentPools, "pool"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, ns := admin(t), namespace(t)
			c.fillAgentPool(t, ns, 1)
			sandbox := c.unused(t, ns)[0]
			if tc.name == "claim" {
				sandbox = text(c.agentBound(t, ns, newAgentClaim("claim")), "status", "sandbox", "name")
			}
			c.setFinalizers(t, ns, sandbox, `["`+finalizer+`"]`)
			err := c.agent(t, tc.through, ns).Delete(t.Context(), tc.name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)})
			if err != nil {
				t.Fatal(err)
			}
			c.awaitAgent(t, agentSandboxes, ns, sandbox, func(sandbox *unstructured.Unstructured) error {
				if sandbox.GetDeletionTimestamp() == nil {
					return errors.New("it is not being deleted")
				}
				return nil
			})
			for _, resource := range []schema.GroupVersionResource{tc.through, tc.other} {
				if waiting := c.getAgent(t, resource, ns, tc.name); waiting.GetDeletionTimestamp() == nil || len(waiting.GetFinalizers()) == 0 {
					t.Errorf("in %s it has the finalizers %v while its sandbox is there", resource.Group, waiting.GetFinalizers())
				}
			}
			c.setFinalizers(t, ns, sandbox, "null")
			for _, resource := range []schema.GroupVersionResource{tc.through, tc.other} {
				client := c.agent(t, resource, ns)
				expect.Eventually(t.Context(), t, func(ctx context.Context) error {
					_, err := client.Get(ctx, tc.name, metav1.GetOptions{})
					return gone(err)
				})
			}
			if tc.name == "claim" {
				_, err := c.agent(t, agentSandboxes, ns).Get(t.Context(), sandbox, metav1.GetOptions{})
				if gone(err) != nil {
					t.Errorf("the claim was gone before its sandbox: %v", err)
				}
			}
		})
	}
}

// TestAgentSandboxNamespaceDeleted: a namespace goes with all that is seen in two groups.
func TestAgentSandboxNamespaceDeleted(t *testing.T) {
	t.Parallel()
	expect.LongOnly(t)
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 3)
	c.agentBound(t, ns, newAgentClaim("theirs"))
	c.claim(t, ns, builders.Claim("ours", 1))
	alone := newAgent(agentSandboxes, "Sandbox", "alone", map[string]any{
		"podTemplate": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "busybox:1"}}}},
	})
	c.makeAgent(t, agentSandboxes, ns, alone)
	c.deleteNamespace(t, ns)
	c.awaitNamespaceGone(t, ns)
	for _, resource := range []schema.GroupVersionResource{agentClaims, agentPools, agentTemplates, agentSandboxes} {
		list, err := c.agent(t, resource, ns).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) > 0 {
			t.Errorf("of %s are left %v: %v", resource.Resource, list, err)
		}
	}
}

// TestAgentSandboxQuota: an object counts in either group's words, once in each, so that a
// limit in one cannot be passed by creating in the other.
func TestAgentSandboxQuota(t *testing.T) {
	t.Parallel()
	const theirs = corev1.ResourceName("count/sandboxclaims." + v1alpha1.ExtensionsGroup)
	for name, limited := range map[string]corev1.ResourceName{"theirs": theirs, "ours": countClaims} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, ns := admin(t), namespace(t)
			c.fillAgentPool(t, ns, 4)
			c.agentBound(t, ns, newAgentClaim("theirs"))
			c.claim(t, ns, builders.Claim("ours", 1))
			c.countQuota(t, ns, limited, 2)
			dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
			expect.Eventually(t.Context(), t, func(ctx context.Context) error { // servers learn of a quota by a watch
				_, err := c.agent(t, agentClaims, ns).Create(ctx, newAgentClaim("third"), dry)
				if !exceeded(err, limited) {
					return fmt.Errorf("a third claim of theirs: %w", asError(err))
				}
				_, err = c.SandboxClaims(ns).Create(ctx, builders.Claim("third", 1), dry)
				if !exceeded(err, limited) {
					return fmt.Errorf("a third claim of ours: %w", asError(err))
				}
				return nil
			})
		})
	}
}

// asError is an error, of a call that should not have succeeded too.
func asError(err error) error {
	if err == nil {
		return errors.New("it is taken")
	}
	return err
}

// countQuota makes a quota of what there is, and waits until it has been counted.
func (c *clients) countQuota(t testing.TB, ns string, what corev1.ResourceName, used int64) {
	t.Helper()
	quotas := c.kube.CoreV1().ResourceQuotas(ns)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "limit"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{what: *resource.NewQuantity(used, resource.DecimalSI)}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	touched := time.Now() // see limit
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		quota, err := quotas.Get(ctx, "limit", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if have, ok := quota.Status.Used[what]; ok && have.Value() == used {
			return nil
		}
		if time.Since(touched) > 5*time.Second {
			touched = time.Now()
			quota.Spec.Hard["count/configmaps"] = *resource.NewQuantity(touched.Unix(), resource.DecimalSI)
			if _, err := quotas.Update(ctx, quota, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
		return fmt.Errorf("used are %v", quota.Status.Used)
	})
}

// TestAgentSandboxServersKilled kills our servers (SIGKILL) while claims of agent-sandbox
// are made, by clients that try again: each claim ends up with one sandbox that is its own.
func TestAgentSandboxServersKilled(t *testing.T) {
	const count = 60
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 20)
	agents := c.agent(t, agentClaims, ns)
	ended := make(chan error, 1)
	go func() {
		for i := range count {
			name := fmt.Sprintf("claim-%02d", i)
			for {
				_, err := agents.Create(t.Context(), newAgentClaim(name), metav1.CreateOptions{})
				if err == nil || apierrors.IsAlreadyExists(err) {
					break
				}
				if t.Context().Err() != nil {
					ended <- t.Context().Err()
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		ended <- nil
	}()
	one, other := sandlot.APIServers()[0], sandlot.APIServers()[1]
	for _, p := range []interface {
		Kill() error
		Start(ctx context.Context) error
	}{one, other, one} {
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	c.awaitAvailable(t)

	holders := map[string]string{}
	for i := range count {
		claim := c.awaitAgent(t, agentClaims, ns, fmt.Sprintf("claim-%02d", i), isAgentBound)
		name := text(claim, "status", "sandbox", "name")
		if other, twice := holders[name]; twice {
			t.Errorf("sandbox %s is %s's and %s's", name, other, claim.GetName())
		}
		holders[name] = claim.GetName()
		sandbox := c.getAgent(t, agentSandboxes, ns, name)
		owner := metav1.GetControllerOf(sandbox)
		if owner == nil || owner.UID != claim.GetUID() || sandbox.GetLabels()[v1alpha1.AgentLabelClaimUID] != string(claim.GetUID()) {
			t.Errorf("sandbox %s of claim %s belongs to %v", name, claim.GetName(), owner)
		}
	}
	list, err := c.agent(t, agentSandboxes, ns).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.AgentLabelClaimUID})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if name := list.Items[i].GetName(); holders[name] == "" {
			t.Errorf("sandbox %s is claimed, and no claim names it", name)
		}
	}
}
