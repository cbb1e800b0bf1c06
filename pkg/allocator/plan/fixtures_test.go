// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// stocked is a sandbox that is available in a pool.
func stocked(name string) *v1alpha1.Sandbox {
	sb := pooled.DeepCopy()
	sb.Name, sb.UID = name, types.UID(name)
	sb.CreationTimestamp = metav1.NewTime(birth.Add(-time.Hour))
	becomeReady(sb)
	return sb
}

func becomeReady(sb *v1alpha1.Sandbox) {
	sb.Status.Phase, sb.Status.PodInfo.PodIP, sb.Status.ObservedGeneration = v1alpha1.SandboxRunning, "10.0.0.1", sb.Generation
	setReady(sb, metav1.ConditionTrue)
}

func setReady(sb *v1alpha1.Sandbox, status metav1.ConditionStatus) {
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionReady, Status: status, Reason: v1alpha1.ReasonPodReady, LastTransitionTime: metav1.NewTime(birth),
	})
}

// setResized sets how the resize of a sandbox went; "" is well.
func setResized(sb *v1alpha1.Sandbox, failure string) {
	c := metav1.Condition{
		Type: v1alpha1.SandboxConditionInplaceUpdate, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSucceeded,
		LastTransitionTime: metav1.NewTime(birth),
	}
	if failure != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonFailed, failure
	}
	meta.SetStatusCondition(&sb.Status.Conditions, c)
}

// setOf is a set of 2 that may serve the claims of these tests.
func setOf(burst int32) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool"}}
	set.Spec.Replicas, set.Spec.ScaleStrategy.Burst = new(int32(2)), &burst
	return set
}

// served is where sandboxes come from when there is a set.
func served() claims.Eligible {
	set := setOf(0)
	return claims.Eligible{Pools: []*v1alpha1.SandboxSet{set}, Found: true, MakeFrom: set, Name: set.Name}
}
