// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTakePods(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"ready":       {func(*corev1.Node) {}, true},
		"cordoned":    {func(n *corev1.Node) { n.Spec.Unschedulable = true }, false},
		"not ready":   {func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionFalse }, false},
		"unreachable": {func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionUnknown }, false},
		"new":         {func(n *corev1.Node) { n.Status.Conditions = nil }, false},
		"deleting":    {func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }, false},
		"about to be removed by cluster-autoscaler": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Value: "1", Effect: corev1.TaintEffectNoSchedule}}
		}, false},
		"about to be removed by Karpenter": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}}
		}, false},
		"for some pods only": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "example.com/gpu", Effect: corev1.TaintEffectNoSchedule}}
		}, true},
		"under pressure": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			}}}
			test.change(node)
			if got := TakePods(node); got != test.want {
				t.Errorf("TakePods() = %t, want %t", got, test.want)
			}
			trimmed, err := store{}.Transformer()(node)
			if err != nil || TakePods(trimmed.(*corev1.Node)) != test.want {
				t.Errorf("it is otherwise once it is trimmed: %v, %v", trimmed, err)
			}
		})
	}
}
