// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// awaitClaim waits until a condition of a claim is true, or not, for a reason.
func (c *clients) awaitClaim(t testing.TB, namespace, name, kind string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		claim, err := c.SandboxClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if is := meta.FindStatusCondition(claim.Status.Conditions, kind); is == nil || is.Status != status || is.Reason != reason {
			return fmt.Errorf("%s of claim %s is %+v", kind, name, is)
		}
		return nil
	})
}

// A pod that dies makes its claim not ready and finished; the lifecycle counts from that.
// With Retain the claim stays without its sandbox, with Delete both go.
func TestPodOfAClaimDies(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 3)
	names := map[v1alpha1.ShutdownPolicy]string{v1alpha1.ShutdownRetain: "retain", v1alpha1.ShutdownDelete: "delete"}
	for policy, name := range names {
		claim := builders.Claim(name, 1)
		claim.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{TTLSecondsAfterFinished: new(int32(3600)), ShutdownPolicy: policy}
		sandbox := expect.Claimed(t, c.claim(t, ns, claim), 1)[0]
		if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), sandbox, types.MergePatchType,
			[]byte(`{"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		c.awaitClaim(t, ns, name, v1alpha1.ClaimConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPodFailed)
		kubectl(t, ns, "", "wait", "--for=condition=Finished", "sandboxclaim/"+name, "--timeout=120s")

		kubectl(t, ns, "", "patch", "sandboxclaim/"+name, "--type=merge", "-p", `{"spec":{"lifecycle":{"ttlSecondsAfterFinished":1}}}`)
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			_, err := c.Sandboxes(ns).Get(ctx, sandbox, metav1.GetOptions{})
			return gone(err)
		})
		c.awaitNoPod(t, ns, sandbox)
	}
	c.awaitClaim(t, ns, "retain", v1alpha1.ClaimConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClaimExpired)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.SandboxClaims(ns).Get(ctx, "delete", metav1.GetOptions{})
		return gone(err)
	})
}

// With DeleteForeground a claim is there, terminating, until the last pod is gone.
func TestDeleteForeground(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	claim := builders.Claim("mine", 2)
	claim.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{
		ShutdownTime: &metav1.Time{Time: time.Now().Add(time.Hour)}, ShutdownPolicy: v1alpha1.ShutdownDeleteForeground,
	}
	sandboxes := expect.Claimed(t, c.claim(t, ns, claim), 2)
	pods := c.kube.CoreV1().Pods(ns)
	hold := func(finalizers string) {
		t.Helper()
		if _, err := pods.Patch(t.Context(), sandboxes[0], types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	hold(`["example.com/last-words"]`)

	kubectl(t, ns, "", "patch", "sandboxclaim/mine", "--type=merge", "-p", `{"spec":{"lifecycle":{"shutdownTime":"2026-01-01T00:00:00Z"}}}`)

	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.Sandboxes(ns).Get(ctx, sandboxes[1], metav1.GetOptions{})
		return gone(err)
	})
	c.awaitNoPod(t, ns, sandboxes[1])
	var pod *corev1.Pod
	expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) {
		if pod, err = pods.Get(ctx, sandboxes[0], metav1.GetOptions{}); err == nil && pod.DeletionTimestamp == nil {
			err = errStillThere
		}
		return err
	})
	sandbox, err := c.Sandboxes(ns).Get(t.Context(), sandboxes[0], metav1.GetOptions{})
	if err != nil || sandbox.DeletionTimestamp == nil {
		t.Errorf("the sandbox of the pod that is left: %+v, %v", sandbox, err)
	}
	waiting, err := c.SandboxClaims(ns).Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil || waiting.DeletionTimestamp == nil || !v1alpha1.HasExpired(waiting) {
		t.Fatalf("the claim of the pod that is left: %+v, %v", waiting, err)
	}
	hold("null")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.SandboxClaims(ns).Get(ctx, "mine", metav1.GetOptions{})
		return gone(err)
	})
	c.awaitNoPod(t, ns, sandboxes[0])
	_, err = c.Sandboxes(ns).Get(t.Context(), sandboxes[0], metav1.GetOptions{})
	if gone(err) != nil {
		t.Errorf("the claim was gone before its sandbox: %v", err)
	}
}
