// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// inTheWay is a finalizer that keeps what is deleted, and outOfTheWay takes it away.
const (
	inTheWay    = `{"metadata":{"finalizers":["example.com/in-the-way"]}}`
	outOfTheWay = `{"metadata":{"finalizers":null}}`
)

// TestStatusCountsWhatCanBeClaimed makes the sandboxes of a pool unfit, one after
// the other and each in another way. The status, and the scale with it, counts those
// that are left, and a claim finds just these.
func TestStatusCountsWhatCanBeClaimed(t *testing.T) {
	t.Parallel()
	const left = 2
	c, ns := admin(t), namespace(t)
	unfit := []struct {
		what string
		do   func(name string)
		undo func(name string)
	}{
		{what: "locked", do: func(name string) {
			c.patchSandbox(t, ns, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"somebody"}}}`, v1alpha1.AnnotationLock))
		}},
		{what: "paused", do: func(name string) { c.patchSandbox(t, ns, name, `{"spec":{"paused":true}}`) }},
		{what: "expired", do: func(name string) {
			c.patchSandbox(t, ns, name, fmt.Sprintf(`{"spec":{"shutdownTime":%q}}`, time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)))
		}},
		{what: "being deleted", do: func(name string) {
			c.patchSandbox(t, ns, name, inTheWay)
			if err := c.Sandboxes(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, undo: func(name string) { c.patchSandbox(t, ns, name, outOfTheWay) }},
		{what: "without a pod that lives", do: func(name string) {
			c.patchPod(t, ns, name, inTheWay)
			if err := ofCluster(t).CoreV1().Pods(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, undo: func(name string) { c.patchPod(t, ns, name, outOfTheWay) }},
	}
	replicas := int32(len(unfit) + left)
	expect.FilledPool(t, c, ns, replicas)
	hold := []byte(`{"spec":{"scaleStrategy":{"maxUnavailable":0}}}`) // nothing comes in place of what is unfit
	if _, err := c.SandboxSets(ns).Patch(t.Context(), "pool", types.MergePatchType, hold, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	names := c.unused(t, ns)
	if len(names) != int(replicas) {
		t.Fatalf("the pool has the sandboxes %q", names)
	}
	for i, tc := range unfit {
		tc.do(names[i])
		if tc.undo != nil {
			defer tc.undo(names[i]) // else the namespace would stay
		}
		c.awaitCounted(t, ns, tc.what, replicas, replicas-int32(i)-1)
	}

	most := builders.Claim("one-too-many", left+1)
	most.Spec.OnShortage, most.Spec.Allocation = v1alpha1.ShortageFail, v1alpha1.AllocationAllOrNothing
	if _, err := c.SandboxClaims(ns).Create(t.Context(), most, metav1.CreateOptions{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a claim of more than there are: %v", err)
	}
	claim := builders.Claim("all", left)
	claim.Spec.OnShortage = v1alpha1.ShortageFail
	c.claim(t, ns, claim)
	c.awaitCounted(t, ns, "claimed", replicas, 0)
}

// awaitCounted waits until the status of the set "pool", and its scale, count so many
// sandboxes, all of them available.
func (c *clients) awaitCounted(t testing.TB, ns, what string, replicas, counted int32) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		set, err := c.SandboxSets(ns).Get(ctx, "pool", metav1.GetOptions{})
		if err != nil {
			return err
		}
		scale, err := c.SandboxSets(ns).GetScale(ctx, "pool", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := set.Status; s.AvailableReplicas != counted || s.Replicas != counted || s.UpdatedReplicas != counted ||
			s.UpdatedAvailableReplicas != counted || scale.Status.Replicas != counted || scale.Spec.Replicas != replicas {
			return fmt.Errorf("%s: %d are to be counted; status %+v, scale %+v", what, counted, s, scale)
		}
		return nil
	})
}

// patchPod changes a pod by a JSON merge patch.
func (c *clients) patchPod(t testing.TB, ns, name, patch string) {
	t.Helper()
	if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatalf("patching a pod with %s: %v", patch, err)
	}
}
