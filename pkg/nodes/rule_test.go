// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStateOfTakesPods(t *testing.T) {
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
			if got := StateOf(node).TakesPods; got != test.want {
				t.Errorf("TakesPods = %t, want %t", got, test.want)
			}
			trimmed, err := store{}.Transformer()(node)
			if err != nil || StateOf(trimmed.(*corev1.Node)).TakesPods != test.want {
				t.Errorf("it is otherwise once it is trimmed: %v, %v", trimmed, err)
			}
		})
	}
}

// The oldest reason says since when a node takes no pods.
func TestStateOfSince(t *testing.T) {
	first, second := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	cordoned := func(n *corev1.Node, since *metav1.Time) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, TimeAdded: since})
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   time.Time
	}{
		"takes pods":         {func(*corev1.Node) {}, time.Time{}},
		"not ready":          {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, second.Time},
		"cordoned":           {func(n *corev1.Node) { cordoned(n, &first) }, first.Time},
		"cordoned just now":  {func(n *corev1.Node) { n.Spec.Unschedulable = true }, time.Time{}},
		"by an old manager":  {func(n *corev1.Node) { cordoned(n, nil) }, time.Time{}},
		"deleting":           {func(n *corev1.Node) { n.DeletionTimestamp = &second }, second.Time},
		"by an autoscaler":   {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: taintKarpenter, TimeAdded: &second}} }, second.Time},
		"cordoned, deleting": {func(n *corev1.Node) { cordoned(n, &first); n.DeletionTimestamp = &second }, first.Time},
		"not ready at first": {func(n *corev1.Node) {
			n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, first
			cordoned(n, &second)
		}, first.Time},
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: second},
		}}}
		tc.change(node)
		if got := StateOf(node); !got.Since.Equal(tc.want) {
			t.Errorf("%s: since %s, want %s", name, got.Since, tc.want)
		}
	}
}
