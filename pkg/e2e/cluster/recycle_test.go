// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestRecycle gives a used sandbox back to its pool: with another pod, and nothing of its
// user. The controllers do it with the rights of their role.
func TestRecycle(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	// So that no other replaces the one that is claimed.
	hold := []byte(`{"spec":{"scaleStrategy":{"maxUnavailable":0}}}`)
	if _, err := c.SandboxSets(ns).Patch(t.Context(), "pool", types.MergePatchType, hold, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := c.claim(t, ns, builders.Claim("claim", 1))
	name := expect.Claimed(t, claim, 1)[0]
	before := c.awaitSandbox(t, ns, name, isReady)
	c.patchSandbox(t, ns, name, `{"metadata":{"labels":{"mine":"a"},"annotations":{"mine":"a","agents.kruise.io/runtime-url":"http://evil"},`+
		`"finalizers":["example.com/mine"]},"spec":{"service":true,"template":{"metadata":{"labels":{"mine":"pod"}}}}}`)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Services(ns).Get(ctx, name, metav1.GetOptions{})
		return err
	})

	c.patchSandbox(t, ns, name, `{"metadata":{"annotations":{"agents.kruise.io/cleanup-enabled":"true","agents.kruise.io/cleanup":"true"}}}`)
	recycled := c.awaitSandbox(t, ns, name, hasCondition(v1alpha1.SandboxConditionRecycling, metav1.ConditionTrue, v1alpha1.ReasonRecyclingSucceeded))
	if err := isReady(recycled); err != nil || recycled.UID != before.UID || recycled.Status.RecycledCount != 1 {
		t.Errorf("%v: %+v", err, recycled)
	}
	pod := c.pod(t, ns, name)
	if pod.UID == before.Status.PodInfo.PodUID || pod.UID != recycled.Status.PodInfo.PodUID {
		t.Errorf("pod %s; before %+v, after %+v", pod.UID, before.Status.PodInfo, recycled.Status.PodInfo)
	}
	for _, key := range []string{"mine", v1alpha1.LabelOwner} {
		if value, ok := pod.Labels[key]; ok {
			t.Errorf("its pod has the label %s=%s", key, value)
		}
	}
	if diff := cmp.Diff(unlikeOthers(c.freshMember(t, ns, name)), unlikeOthers(recycled),
		cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime", "ObservedGeneration")); diff != "" {
		t.Errorf("it differs from one that was never claimed (-never +recycled):\n%s", diff)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Services(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("the Service %s is there", name)
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	for _, reason := range []string{"SandboxRecycling", "RecyclingStarted", "RecyclingSucceeded", "SandboxRunning"} {
		c.awaitEvent(t, recycled, corev1.EventTypeNormal, reason)
	}
	expect.FullPool(t, c, ns, "pool", 2)
	both := builders.Claim("both", 2)
	both.Spec.OnShortage = v1alpha1.ShortageFail
	if got := c.claim(t, ns, both); got.Status.ClaimedReplicas != 2 {
		t.Errorf("the next claim has %+v", got.Status)
	}
}

// freshMember returns a sandbox of the pool that was never claimed, beside one.
func (c *clients) freshMember(t *testing.T, ns, beside string) *v1alpha1.Sandbox {
	t.Helper()
	list, err := c.Sandboxes(ns).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelSandboxClaimed + "=" + v1alpha1.ClaimedFalse})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if sb := &list.Items[i]; sb.Name != beside && sb.Status.RecycledCount == 0 {
			return sb
		}
	}
	t.Fatal("there is no sandbox that was never claimed")
	return nil
}

// unlikeOthers is a sandbox without what is different for each.
func unlikeOthers(sb *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	sb = sb.DeepCopy()
	sb.ManagedFields, sb.Name, sb.UID, sb.ResourceVersion, sb.CreationTimestamp = nil, "", "", "", metav1.Time{}
	sb.Status.ObservedGeneration -= sb.Generation
	sb.Generation, sb.Status.RecycledCount = 0, 0
	meta.RemoveStatusCondition(&sb.Status.Conditions, v1alpha1.SandboxConditionRecycling)
	sb.Status.SandboxIP, sb.Status.NodeName, sb.Status.PodInfo = "", "", v1alpha1.PodInfo{}
	return sb
}
