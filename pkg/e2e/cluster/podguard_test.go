// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// The pod of a living sandbox is not deleted past the sandbox, by any user and in any
// way. It goes with the sandbox.
func TestPodOfALivingSandboxIsKept(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	claimed := c.claim(t, ns, builders.Claim("claim", 1)).Status.Sandboxes[0].Name
	expect.FullPool(t, c, ns, "pool", 2)
	unclaimed := c.unused(t, ns)[0]
	editor := uniqueUser(t, "editor")
	grant(t, ns, "edit", editor)
	pods := c.kube.CoreV1().Pods(ns)

	for _, name := range []string{claimed, unclaimed} {
		says := fmt.Sprintf("cannot delete pod %s/%s: corresponding sandbox exists. Please delete the sandbox instead", ns, name)
		for way, remove := range map[string]func(ctx context.Context) error{
			"deleted": func(ctx context.Context) error { return pods.Delete(ctx, name, metav1.DeleteOptions{}) },
			"killed": func(ctx context.Context) error {
				return pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
			},
			"deleted in a dry run": func(ctx context.Context) error {
				return pods.Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			},
			"deleted with all others": func(ctx context.Context) error {
				return pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			},
			"deleted by a user": func(ctx context.Context) error {
				return as(t, editor).kube.CoreV1().Pods(ns).Delete(ctx, name, metav1.DeleteOptions{})
			},
		} {
			expect.Eventually(t.Context(), t, func(ctx context.Context) error { // roles take a moment to be known
				err := remove(ctx)
				if err == nil {
					t.Fatalf("pod %s was %s", name, way)
				}
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
					return fmt.Errorf("%s: got %w, want %q", way, err, says)
				}
				return nil
			})
		}
		c.awaitSandbox(t, ns, name, isReady)
		if got := c.pod(t, ns, name); got.DeletionTimestamp != nil {
			t.Errorf("pod %s is being deleted", name)
		}
		if err := c.Sandboxes(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitNoPod(t, ns, name)
	}
}

// What runs the cluster may delete pods of sandboxes, and nothing is in the way of pods
// that have ended, are being deleted already, or are no sandbox's.
func TestPodsThatMayBeDeleted(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	pods := c.kube.CoreV1().Pods(ns)
	for _, name := range []string{"box", "ended", "terminating"} {
		c.makeSandbox(t, ns, name, smallTemplate)
		c.awaitSandbox(t, ns, name, isReady)
	}
	dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	for _, user := range []string{
		"system:kube-controller-manager", "system:kube-scheduler", controllerManager,
		"system:serviceaccount:kube-system:generic-garbage-collector", "system:serviceaccount:kube-system:namespace-controller",
		"system:serviceaccount:kube-system:node-controller", "system:serviceaccount:kube-system:pod-garbage-collector",
		"system:serviceaccount:kube-system:device-taint-eviction-controller",
	} {
		if err := impersonating(t, user, "system:masters").CoreV1().Pods(ns).Delete(t.Context(), "box", dry); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
	if err := impersonating(t, "system:node:n", "system:nodes", "system:masters").CoreV1().Pods(ns).Delete(t.Context(), "box", dry); err != nil {
		t.Errorf("a node: %v", err)
	}
	for _, other := range []string{"system:serviceaccount:kube-system:default", "system:serviceaccount:" + ns + ":node-controller"} {
		if err := impersonating(t, other, "system:masters").CoreV1().Pods(ns).Delete(t.Context(), "box", dry); !apierrors.IsInvalid(err) {
			t.Errorf("%s: got %v, want it to be denied", other, err)
		}
	}

	if _, err := pods.Patch(t.Context(), "ended", types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "ended", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a pod that has ended: %v", err)
	}
	c.patchPod(t, ns, "terminating", inTheWay)
	if err := ofCluster(t).CoreV1().Pods(ns).Delete(t.Context(), "terminating", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "terminating", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Errorf("a pod that is being deleted: %v", err)
	}
	c.patchPod(t, ns, "terminating", outOfTheWay)
	alike := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "alike", Labels: c.pod(t, ns, "box").Labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}},
	}
	if _, err := pods.Create(t.Context(), alike, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "alike", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a pod of no sandbox: %v", err)
	}
	claiming := alike.DeepCopy()
	claiming.Name, claiming.OwnerReferences = "claiming", c.pod(t, ns, "box").OwnerReferences
	if _, err := pods.Create(t.Context(), claiming, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "claiming", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a pod that only says to be a sandbox's: %v", err)
	}
}

// A namespace goes with its sandboxes and their pods.
func TestNamespaceOfKeptPodsGoes(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	c.claim(t, ns, builders.Claim("claim", 1))
	if err := c.kube.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		return gone(err)
	})
}

// The budget of docs/operations.md keeps pods of sandboxes from being evicted, and no
// others.
func TestEvictionOfSandboxes(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeSandbox(t, ns, "box", smallTemplate)
	c.awaitSandbox(t, ns, "box", isReady)
	evict := func(ctx context.Context, name string) error {
		return c.kube.PolicyV1().Evictions(ns).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}})
	}
	if err := evict(t.Context(), "box"); err != nil {
		t.Errorf("without the budget: %v", err)
	}

	kubectl(t, ns, "", "create", "poddisruptionbudget", "sandboxes", "--selector=agents.kruise.io/created-by=sandbox", "--min-available=1000000")

	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if err := evict(ctx, "box"); !apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("with the budget: got %w, want 429", err)
		}
		return nil
	})
	other := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "other"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}},
	}
	if _, err := c.kube.CoreV1().Pods(ns).Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := evict(t.Context(), "other"); err != nil {
		t.Errorf("another pod: %v", err)
	}
}
