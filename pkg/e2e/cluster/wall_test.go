// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/envdtest"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// runtimeTemplate is a pod template that brings an agent-runtime by itself.
const runtimeTemplate = `{"spec":{"initContainers":[{"name":"runtime","image":"envd:1","restartPolicy":"Always"}],"containers":[{"name":"main","image":"busybox:1"}]}}`

// makeRuntimePool creates the set "pool" of sandboxes with an agent-runtime, and waits until
// it is full, which takes envd in them.
func (c *clients) makeRuntimePool(t testing.TB, ns string, replicas int32) {
	t.Helper()
	envdtest.Start(t).Follow(t, c, ns)
	set := builders.Set("pool", replicas)
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(runtimeTemplate)}
	if _, err := c.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, c, ns, "pool", replicas)
}

// isWall reports what is wrong with the policy for agent-runtimes.
func isWall(p *networkingv1.NetworkPolicy) error {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	switch {
	case err != nil:
		return err
	case !selector.Matches(labels.Set{v1alpha1.LabelAgentRuntime: v1alpha1.AgentRuntimeTrue}) || selector.Matches(labels.Set{}):
		return errors.New("selects something else")
	case !equality.Semantic.DeepEqual(p.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) || len(p.Spec.Ingress) != 1 || len(p.Spec.Ingress[0].From) != 2:
		return errors.New("is about something else")
	}
	for _, from := range p.Spec.Ingress[0].From {
		if from.PodSelector == nil || from.NamespaceSelector == nil || from.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != controlplane.Namespace {
			return errors.New("lets in others than pods of the installation")
		}
	}
	return nil
}

// TestAgentRuntimesHaveAWall: pods with an agent-runtime are behind a policy while they are
// warm, no claim writes to it, and it goes after the last of them.
func TestAgentRuntimesHaveAWall(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	policies := c.kube.NetworkingV1().NetworkPolicies(ns)
	c.makeRuntimePool(t, ns, 2)
	made := c.awaitPolicy(t, ns, v1alpha1.AgentRuntimesPolicy, isWall)
	c.makeSandbox(t, ns, "plain", smallTemplate, func(*v1alpha1.Sandbox) {})
	c.awaitSandbox(t, ns, "plain", isReady)
	selector, err := metav1.LabelSelectorAsSelector(&made.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	selected, err := c.kube.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil || len(selected.Items) != 2 {
		t.Fatalf("%s selects %d pods, %v", selector, len(selected.Items), err)
	}
	for i := range selected.Items {
		name := selected.Items[i].Name
		if counts := writesOf(t, ns, name, []string{plane.AuditLog()}); counts[write{"create", "pods"}] != 1 || counts[write{"patch", "pods"}] != 0 {
			t.Errorf("pod %s has the label later than from its birth: %v", name, counts)
		}
	}

	claim := builders.Claim("mine", 1)
	claim.Spec.SkipInitRuntime = true
	c.claim(t, ns, claim)
	expect.FullPool(t, c, ns, "pool", 2)
	if now := c.awaitPolicy(t, ns, made.Name, isWall); now.ResourceVersion != made.ResourceVersion {
		t.Errorf("the policy was written from version %s to %s", made.ResourceVersion, now.ResourceVersion)
	}

	// What somebody changes is brought back, and what he deletes is made again.
	for _, drift := range []string{`{"spec":{"ingress":[{}]}}`, `{"spec":{"podSelector":{"matchLabels":{"a":"b"}}}}`} {
		if _, err := policies.Patch(t.Context(), made.Name, types.MergePatchType, []byte(drift), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitPolicy(t, ns, made.Name, isWall)
	}
	if err := policies.Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitPolicy(t, ns, made.Name, isWall)

	if err := c.SandboxSets(ns).Delete(t.Context(), "pool", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Sandboxes(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitNoPolicy(t, ns, made.Name)
}

// TestForeignWall: a policy of somebody else that has the name is left as it is, and has one
// event however many pods come.
func TestForeignWall(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	policies := c.kube.NetworkingV1().NetworkPolicies(ns)
	foreign, err := policies.Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AgentRuntimesPolicy},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.makeRuntimePool(t, ns, 3)
	c.awaitEventOn(t, ns, foreign.UID, corev1.EventTypeWarning, "NetworkPolicyNameTaken", "left as it is")
	if got, err := policies.Get(t.Context(), foreign.Name, metav1.GetOptions{}); err != nil || got.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("somebody else's policy became %+v, %v", got, err)
	}
	// It is looked at again when it is gone.
	if err := policies.Delete(t.Context(), foreign.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		policy, err := policies.Get(ctx, v1alpha1.AgentRuntimesPolicy, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := isWall(policy); err != nil {
			return fmt.Errorf("%w: %+v", err, policy.Spec)
		}
		return nil
	})
}
