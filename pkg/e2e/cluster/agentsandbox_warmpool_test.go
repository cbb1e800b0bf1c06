// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// pooledImages returns the images of the pods that a pool's selector finds, sorted, by
// which the members of a full pool are distinguished.
func (c *clients) pooledImages(t testing.TB, ns, selector string) []string {
	t.Helper()
	var images []string
	for _, pod := range c.podsOf(t, ns, selector) {
		if pod.DeletionTimestamp == nil {
			images = append(images, pod.Spec.Containers[0].Image)
		}
	}
	slices.Sort(images)
	return images
}

// awaitImages waits until the pods that a pool's selector finds have these images.
func (c *clients) awaitImages(t testing.TB, ns, selector string, want ...string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := c.pooledImages(t, ns, selector); !slices.Equal(got, want) {
			return fmt.Errorf("the pool has the images %q, want %q", got, want)
		}
		return nil
	})
}

// TestAgentSandboxWarmPool follows a SandboxWarmPool: its status, its scale, its members,
// and what becomes of these when the template changes.
func TestAgentSandboxWarmPool(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 2)
	selector := v1alpha1.AgentLabelPool + "=" + v1alpha1.NameHash("pool")
	isFull := func(want int64) func(*unstructured.Unstructured) error {
		return func(pool *unstructured.Unstructured) error {
			got := [3]int64{number(pool, "status", "replicas"), number(pool, "status", "readyReplicas"), number(pool, "status", "observedGeneration")}
			if got != [3]int64{want, want, pool.GetGeneration()} || text(pool, "status", "selector") != selector {
				return fmt.Errorf("replicas, ready ones and generation are %v, want %d of %d", got, want, pool.GetGeneration())
			}
			return nil
		}
	}
	pool := c.awaitAgent(t, agentPools, ns, "pool", isFull(2))
	if kind := text(pool, "spec", "updateStrategy", "type"); kind != "OnReplenish" {
		t.Errorf("the update strategy is %q by default", kind)
	}
	c.memberOfAgentPool(t, ns, selector)

	// The scale is what an autoscaler needs: how many there are, and what selects them.
	raw, err := c.agent(t, agentPools, ns).Get(t.Context(), "pool", metav1.GetOptions{}, "scale")
	if err != nil {
		t.Fatal(err)
	}
	var scale autoscalingv1.Scale
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, &scale); err != nil {
		t.Fatal(err)
	}
	if scale.Spec.Replicas != 2 || scale.Status.Replicas != 2 || scale.Status.Selector != selector {
		t.Errorf("the scale is %+v, %+v", scale.Spec, scale.Status)
	}
	_, err = c.kube.AutoscalingV2().HorizontalPodAutoscalers(ns).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "pool"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: agentPools.GroupVersion().String(), Kind: "SandboxWarmPool", Name: "pool"},
			MinReplicas:    new(int32(3)), MaxReplicas: 5,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.awaitAgent(t, agentPools, ns, "pool", isFull(3))

	// OnReplenish: what is there stays, and what comes is of the template as it is now.
	image := func(image string) {
		t.Helper()
		c.patchAgent(t, agentTemplates, ns, "python", `{"spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "`+image+`"}]}}}}`)
	}
	image("busybox:2")
	claimed := text(c.agentBound(t, ns, newAgentClaim("claim")), "status", "sandbox", "name")
	c.awaitImages(t, ns, selector, "busybox:1", "busybox:1", "busybox:2")

	// Recreate: what is stale goes at once, what is claimed stays, and metadata makes
	// nothing stale.
	c.patchAgent(t, agentPools, ns, "pool", `{"spec": {"updateStrategy": {"type": "Recreate"}}}`)
	c.awaitImages(t, ns, selector, "busybox:2", "busybox:2", "busybox:2")
	c.awaitAgent(t, agentPools, ns, "pool", isFull(3))
	members := c.unused(t, ns)
	slices.Sort(members)
	c.patchAgent(t, agentTemplates, ns, "python", `{"spec": {"podTemplate": {"metadata": {"labels": {"team": "a"}}}}}`)
	c.agentBound(t, ns, newAgentClaim("another")) // the one that comes for it shows that the pool has seen the edit
	c.awaitAgent(t, agentPools, ns, "pool", isFull(3))
	stayed := 0
	for _, name := range c.unused(t, ns) {
		if slices.Contains(members, name) {
			stayed++
		}
	}
	if stayed != 2 {
		t.Errorf("after an edit of metadata %d of two members are left", stayed)
	}
	if pod, err := c.kube.CoreV1().Pods(ns).Get(t.Context(), claimed, metav1.GetOptions{}); err != nil || pod.Spec.Containers[0].Image != "busybox:1" {
		t.Errorf("the pod of a claimed sandbox: %v", err)
	}
	// Another template is a change, too, whatever it says.
	twin := c.getAgent(t, agentTemplates, ns, "python")
	c.makeAgent(t, agentTemplates, ns, newAgent(agentTemplates, "SandboxTemplate", "twin", twin.Object["spec"].(map[string]any)))
	c.patchAgent(t, agentPools, ns, "pool", `{"spec": {"sandboxTemplateRef": {"name": "twin"}}}`)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		of := v1alpha1.AgentLabelTemplate + "=" + v1alpha1.NameHash("twin")
		if pods := c.podsOf(t, ns, selector+","+of); len(pods) != 3 {
			return fmt.Errorf("%d pods are of the other template", len(pods))
		}
		return nil
	})
}

// memberOfAgentPool fails unless members of a pool, and their pods, say what those of
// agent-sandbox do.
func (c *clients) memberOfAgentPool(t testing.TB, ns, selector string) {
	t.Helper()
	list, err := c.agent(t, agentSandboxes, ns).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	pods := c.podsOf(t, ns, selector)
	if len(list.Items) != 2 || len(pods) != 2 {
		t.Fatalf("the selector of the pool finds %d sandboxes and %d pods", len(list.Items), len(pods))
	}
	want := map[string]string{v1alpha1.AgentLabelTemplate: v1alpha1.NameHash("python"), v1alpha1.AgentLabelCreatedBy: "controller"}
	for i := range list.Items {
		sandbox := &list.Items[i]
		for key, value := range want {
			if got := sandbox.GetLabels()[key]; got != value {
				t.Errorf("the label %s of a member is %q, want %q", key, got, value)
			}
		}
		if got := sandbox.GetAnnotations()[v1alpha1.AgentAnnotationTemplate]; got != "python" {
			t.Errorf("a member says that its template is %q", got)
		}
	}
	for i := range pods {
		for key, value := range want {
			if got := pods[i].Labels[key]; got != value {
				t.Errorf("the label %s of the pod of a member is %q, want %q", key, got, value)
			}
		}
		if got := pods[i].Annotations[v1alpha1.AnnotationSafeToEvict]; got != "true" {
			t.Errorf("the pod of a member says safe-to-evict %q", got)
		}
	}
}
