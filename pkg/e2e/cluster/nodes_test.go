// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestCordonedNode: claims get sandboxes of the node that takes pods, the pool moves there,
// and when no node takes pods claims get what there is.
func TestCordonedNode(t *testing.T) {
	t.Parallel()
	const first, second = "cordoned-first", "cordoned-second"
	c := admin(t)
	t.Cleanup(func() { // after the namespace has gone
		for _, name := range []string{first, second} {
			if err := c.kube.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
	ns := namespace(t)
	c.ownNode(t, first, ns)

	set := builders.Set("pool", 2)
	set.Spec.Template = &runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"spec":{"containers":[{"image":"busybox:1","name":"main"}],"nodeSelector":{"example.com/own":%q},"tolerations":[{"key":"example.com/own"}]}}`, ns)}
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(0)) // nothing is replaced for now
	if _, err := c.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, c, ns, "pool", 2) // on the first node

	c.ownNode(t, second, ns)
	c.cordon(t, first)
	c.patchSet(t, ns, `{"spec":{"replicas":4}}`)
	expect.FullPool(t, c, ns, "pool", 4) // two on the second
	on := func(node string) func(*v1alpha1.SandboxClaim, error) error {
		return func(claim *v1alpha1.SandboxClaim, err error) error {
			if err != nil {
				return err
			}
			for _, status := range claim.Status.Sandboxes {
				sandbox, err := c.Sandboxes(ns).Get(t.Context(), status.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if got := sandbox.Status.NodeName; got != node {
					return fmt.Errorf("sandbox %s is on node %s, want %s", status.Name, got, node)
				}
			}
			if want := int(*claim.Spec.Replicas); len(claim.Status.Sandboxes) != want {
				return fmt.Errorf("%d sandboxes, want %d", len(claim.Status.Sandboxes), want)
			}
			return nil
		}
	}
	c.eachServer(t, ns, builders.Claim("two", 2), on(second))
	if err := on(second)(c.claim(t, ns, builders.Claim("two", 2)), nil); err != nil {
		t.Error(err)
	}

	c.patchSet(t, ns, `{"spec":{"updateStrategy":{"maxUnavailable":"50%"}}}`)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		sandboxes, err := c.Sandboxes(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range sandboxes.Items {
			if sandbox := &sandboxes.Items[i]; sandbox.Status.NodeName == first {
				return fmt.Errorf("sandbox %s is on the cordoned node still", sandbox.Name)
			}
		}
		return nil
	})
	expect.FullPool(t, c, ns, "pool", 4)

	c.cordon(t, second)
	if err := on(second)(c.claim(t, ns, builders.Claim("four", 4)), nil); err != nil {
		t.Errorf("no node takes pods: %v", err)
	}
}

// ownNode makes a node for the sandboxes of a namespace.
func (c *clients) ownNode(t testing.TB, name, namespace string) {
	t.Helper()
	nodes := c.kube.CoreV1().Nodes()
	model, err := nodes.Get(t.Context(), "node-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: model.Annotations, Labels: model.Labels}}
	node.Labels[corev1.LabelHostname], node.Labels["example.com/own"] = name, namespace
	node.Spec.Taints = []corev1.Taint{{Key: "example.com/own", Effect: corev1.TaintEffectNoSchedule}}
	node.Status = corev1.NodeStatus{Allocatable: model.Status.Allocatable, Capacity: model.Status.Capacity}
	if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// cordon is kubectl cordon.
func (c *clients) cordon(t testing.TB, node string) {
	t.Helper()
	patch := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := c.kube.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// patchSet changes the set "pool".
func (c *clients) patchSet(t testing.TB, namespace, patch string) {
	t.Helper()
	if _, err := c.SandboxSets(namespace).Patch(t.Context(), "pool", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
