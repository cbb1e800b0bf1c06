// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/retry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/scheme"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestScale scales a pool up and down with kubectl.
func TestScale(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	kubectl(t, ns, builders.PoolYAML, "apply", "-f", "-")
	expect.FullPool(t, c, ns, "pool", 3)
	kubectl(t, ns, "", "scale", "sandboxset", "pool", "--current-replicas=3", "--replicas=5")
	expect.FullPool(t, c, ns, "pool", 5)
	kubectl(t, ns, "", "scale", "sbs/pool", "--replicas=1")
	expect.FullPool(t, c, ns, "pool", 1)
	if _, err := tryKubectl(t, "", ns, "", "scale", "sbs/pool", "--replicas=2", "--current-replicas=7"); err == nil {
		t.Error("scaled although there are not as many as was said")
	}
	kubectl(t, ns, "", "scale", "sbs/pool", "--replicas=0")
	expect.FullPool(t, c, ns, "pool", 0)
	c.awaitOnly(t, ns)
}

// TestScaleClient scales as the HorizontalPodAutoscaler does: with a client that
// knows nothing of our kinds and finds its way by discovery.
func TestScaleClient(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	found := memory.NewMemCacheClient(c.kube.Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(found)
	scales, err := scale.NewForConfig(c.config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(found))
	if err != nil {
		t.Fatal(err)
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: v1alpha1.GroupName, Kind: "SandboxSet"}, "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	resource := mapping.Resource.GroupResource()
	pool, err := scales.Scales(ns).Get(t.Context(), resource, "pool", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pool.Spec.Replicas != 2 || pool.Status.Replicas != 2 || pool.Status.Selector == "" {
		t.Errorf("the scale is %+v", pool)
	}
	stale := pool.DeepCopy()
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // its controller writes as well
		pool, err := scales.Scales(ns).Get(t.Context(), resource, "pool", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pool.Spec.Replicas = 3
		_, err = scales.Scales(ns).Update(t.Context(), resource, pool, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, c, ns, "pool", 3)
	stale.Spec.Replicas = 1
	if _, err := scales.Scales(ns).Update(t.Context(), resource, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("scaling by what was there before: %v", err)
	}
}

// TestHorizontalPodAutoscaler lets the one of kube-controller-manager take a pool
// between its bounds. There are no metrics here, which it does not need for that.
func TestHorizontalPodAutoscaler(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 1)
	_, err := c.kube.AutoscalingV2().HorizontalPodAutoscalers(ns).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "pool"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "agents.kruise.io/v1alpha1", Kind: "SandboxSet", Name: "pool"},
			MinReplicas:    new(int32(3)), MaxReplicas: 5,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, c, ns, "pool", 3)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		hpa, err := c.kube.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(ctx, "pool", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range hpa.Status.Conditions {
			if condition.Type == autoscalingv2.AbleToScale && condition.Status == corev1.ConditionTrue && hpa.Status.CurrentReplicas == 3 {
				return nil
			}
		}
		return fmt.Errorf("the autoscaler says %+v", hpa.Status)
	})
	kubectl(t, ns, "", "scale", "sbs/pool", "--replicas=7")
	expect.FullPool(t, c, ns, "pool", 5)
}

// patchScale patches the scale of a set, which the typed client cannot decode.
func (c *clients) patchScale(ctx context.Context, ns, name string, kind types.PatchType, body string, options metav1.PatchOptions) error {
	return c.RESTClient().Patch(kind).Namespace(ns).Resource("sandboxsets").Name(name).SubResource("scale").
		VersionedParams(&options, scheme.ParameterCodec).Body([]byte(body)).Do(ctx).Error()
}
