// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestPoolOfATemplate follows a set that refers to a template and patches it, from
// pods to a claim and a roll-out.
func TestPoolOfATemplate(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	base := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "base"}}
	base.Spec.Template = &runtime.RawExtension{Raw: []byte(
		`{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"main","image":"busybox:1","env":[{"name":"A","value":"1"}]}]}}`)}
	if _, err := c.SandboxTemplates(ns).Create(t.Context(), base, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const replicas = 5
	set := builders.Set("pool", replicas)
	set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "base"}
	set.Spec.RevisionHistoryLimit = new(int32(0))
	set.Spec.Patch = &runtime.RawExtension{Raw: []byte(
		`{"metadata":{"labels":{"tier":"small"}},"spec":{"containers":[{"name":"main","env":[{"name":"B","value":"2"}]}]}}`)}
	if _, err := c.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, c, ns, "pool", replicas)
	c.awaitPoolImage(t, ns, "busybox:1", replicas)
	for _, name := range c.unused(t, ns) {
		pod := c.pod(t, ns, name)
		if pod.Labels["app"] != "x" || pod.Labels["tier"] != "small" || len(pod.Spec.Containers[0].Env) != 2 {
			t.Errorf("pod %s: labels %v, env %v", name, pod.Labels, pod.Spec.Containers[0].Env)
		}
	}

	// The claimed sandbox continues with its pod, which learns whose it is.
	claim := c.claim(t, ns, builders.Claim("mine", 1))
	claimed := claim.Status.Sandboxes[0].Name
	before := c.pod(t, ns, claimed)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if pod := c.pod(t, ns, claimed); pod.UID != before.UID || pod.Labels[v1alpha1.LabelOwner] != string(claim.UID) || pod.Labels["tier"] != "small" {
			return fmt.Errorf("pod %s, before %s, has labels %v", pod.UID, before.UID, pod.Labels)
		}
		return nil
	})

	// An edit of the template rolls out, past the sandbox that is claimed.
	edit := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}}}`)
	if _, err := c.SandboxTemplates(ns).Patch(t.Context(), "base", types.MergePatchType, edit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitPoolImage(t, ns, "busybox:2", replicas)
	if sandbox := c.awaitSandbox(t, ns, claimed, isReady); sandbox.Spec.TemplateRef != nil || !strings.Contains(string(sandbox.Spec.Template.Raw), "busybox:1") {
		t.Errorf("the claimed sandbox has %+v", sandbox.Spec.EmbeddedSandboxTemplate)
	}

	// Old revisions are not kept, as the set says, and the garbage collector takes the last one.
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { return c.onlyTemplates(ctx, ns, 2) })
	if err := c.SandboxSets(ns).Delete(t.Context(), "pool", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { return c.onlyTemplates(ctx, ns, 1) })
}

func (c *clients) onlyTemplates(ctx context.Context, ns string, want int) error {
	list, err := c.SandboxTemplates(ns).List(ctx, metav1.ListOptions{})
	if err == nil && len(list.Items) != want {
		err = fmt.Errorf("%d templates, want %d", len(list.Items), want)
	}
	return err
}

// awaitPoolImage waits until the set "pool" is full of pods of an image.
func (c *clients) awaitPoolImage(t *testing.T, ns, image string, replicas int) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		set, err := c.SandboxSets(ns).Get(ctx, "pool", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if int(set.Status.UpdatedAvailableReplicas) != replicas {
			return fmt.Errorf("status %+v", set.Status)
		}
		with := 0
		for _, name := range c.unused(t, ns) {
			pod, err := c.kube.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if pod.Spec.Containers[0].Image == image {
				with++
			}
		}
		if with != replicas {
			return fmt.Errorf("%d pods of %s", with, image)
		}
		return nil
	})
}

// TestSandboxOfAPodTemplate has a sandbox wait for a PodTemplate of the cluster.
func TestSandboxOfAPodTemplate(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeSandbox(t, ns, "box", "", func(s *v1alpha1.Sandbox) {
		s.Spec.Template = nil
		s.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: "plain", Kind: v1alpha1.TemplateKindPodTemplate, APIVersion: "v1"}
	})
	c.awaitSandbox(t, ns, "box", func(s *v1alpha1.Sandbox) error {
		if s.Status.Phase != v1alpha1.SandboxPending || !strings.Contains(s.Status.Message, "PodTemplate plain: not found") {
			return errors.New("does not tell what it waits for")
		}
		return hasCondition(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)(s)
	})
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	template.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox:1"}}
	if _, err := c.kube.CoreV1().PodTemplates(ns).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ready := c.awaitSandbox(t, ns, "box", isReady)
	if ready.Status.Message != "" {
		t.Errorf("message %q", ready.Status.Message)
	}
	pod := c.pod(t, ns, "box")
	if pod.Spec.Containers[0].Image != "busybox:1" || pod.Labels[v1alpha1.LabelPodTemplateHash] != ready.Status.UpdateRevision {
		t.Errorf("pod with labels %v: %+v", pod.Labels, pod.Spec)
	}

	// What has a pod has nothing to do with the template any more.
	if err := c.kube.CoreV1().PodTemplates(ns).Delete(t.Context(), "plain", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.patchSandbox(t, ns, "box", `{"metadata":{"labels":{"seen":"yes"}}}`)
	if got := c.awaitSandbox(t, ns, "box", isReady); c.pod(t, ns, "box").UID != pod.UID || got.Status.Phase != v1alpha1.SandboxRunning {
		t.Errorf("status %+v", got.Status)
	}
}
