// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestAutoscalerDuringABurst lets claims wait on a small pool that an autoscaler
// keeps. The pool grows for them and shrinks again; the scale says so all the time,
// and the autoscaler leaves the set at what it is to keep.
func TestAutoscalerDuringABurst(t *testing.T) {
	t.Parallel()
	const replicas, burst = 2, 12
	c, ns := admin(t), namespace(t)
	set := builders.Set("pool", replicas)
	set.Spec.ScaleStrategy.Burst = new(int32(burst))
	if _, err := c.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, c, ns, "pool", replicas)
	_, err := c.kube.AutoscalingV2().HorizontalPodAutoscalers(ns).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "pool"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "agents.kruise.io/v1alpha1", Kind: "SandboxSet", Name: "pool"},
			MinReplicas:    new(int32(replicas)), MaxReplicas: replicas + 1,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	told := c.statuses(t, ns, "pool")

	// All of nothing: what is made for it is there together before it is taken.
	for _, name := range []string{"a", "b"} {
		claim := builders.Claim(name, replicas+5)
		claim.Spec.Allocation = v1alpha1.AllocationAllOrNothing
		claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 2 * expect.Patience}
		if _, err := c.SandboxClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			claim, err := c.SandboxClaims(ns).Get(ctx, name, metav1.GetOptions{})
			if err == nil && claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
				err = fmt.Errorf("claim %s: %+v", name, claim.Status)
			}
			if err == nil {
				expect.Claimed(t, claim, replicas+5)
			}
			return err
		})
	}
	expect.FullPool(t, c, ns, "pool", replicas)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		hpa, err := c.kube.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(ctx, "pool", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range hpa.Status.Conditions {
			if condition.Type == autoscalingv2.AbleToScale && condition.Status == corev1.ConditionTrue && hpa.Status.CurrentReplicas == replicas {
				return nil
			}
		}
		return fmt.Errorf("the autoscaler says %+v", hpa.Status)
	})
	scale, err := c.SandboxSets(ns).GetScale(t.Context(), "pool", metav1.GetOptions{})
	if err != nil || scale.Spec.Replicas != replicas || scale.Status.Replicas != replicas {
		t.Errorf("the scale is %+v, %v", scale, err)
	}
	most := int32(0)
	for _, set := range told(scale.ResourceVersion) {
		if *set.Spec.Replicas != replicas || set.Status.Replicas > replicas+burst || set.Status.AvailableReplicas > set.Status.Replicas {
			t.Errorf("the set was to keep %d, and told %+v", *set.Spec.Replicas, set.Status)
		}
		most = max(most, set.Status.Replicas)
	}
	t.Logf("the set told of %d at most", most)
	if most <= replicas {
		t.Error("the set never told that there were more")
	}
}

// statuses watches a set. What it returns returns the set in all its states up to a
// resourceVersion.
func (c *clients) statuses(t testing.TB, ns, name string) func(until string) []*v1alpha1.SandboxSet {
	t.Helper()
	set, err := c.SandboxSets(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := watchtools.NewRetryWatcherWithContext(t.Context(), set.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = "metadata.name=" + name
			return c.SandboxSets(ns).Watch(ctx, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(until string) []*v1alpha1.SandboxSet {
		t.Helper()
		defer w.Stop()
		for all := []*v1alpha1.SandboxSet{set}; ; {
			last := all[len(all)-1].ResourceVersion
			if order, err := resourceversion.CompareResourceVersion(last, until); err != nil || order >= 0 {
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			select {
			case e := <-w.ResultChan():
				set, ok := e.Object.(*v1alpha1.SandboxSet)
				if !ok {
					t.Fatalf("an event of the watch: %+v", e)
				}
				all = append(all, set)
			case <-time.After(expect.Patience):
				t.Fatalf("the watch is at %s, and not yet at %s", last, until)
			}
		}
	}
}
