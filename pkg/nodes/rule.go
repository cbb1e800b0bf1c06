// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The taints by which autoscalers cordon nodes that they are about to remove.
const (
	taintClusterAutoscaler = "ToBeDeletedByClusterAutoscaler"
	taintKarpenter         = "karpenter.sh/disrupted"
)

// StateOf returns the state of a node. A node takes pods if it is ready and is neither cordoned nor
// about to be removed. Other taints are ignored. Since is the time of the oldest reason.
func StateOf(node *corev1.Node) State {
	state := State{TakesPods: true}
	takesNone := func(since *metav1.Time) {
		state.TakesPods = false
		if !since.IsZero() && (state.Since.IsZero() || since.Time.Before(state.Since)) {
			state.Since = since.Time
		}
	}
	if node.DeletionTimestamp != nil {
		takesNone(node.DeletionTimestamp)
	}
	if node.Spec.Unschedulable {
		takesNone(nil)
	}
	for _, taint := range node.Spec.Taints {
		switch taint.Key {
		case taintClusterAutoscaler, taintKarpenter:
			takesNone(taint.TimeAdded)
		case corev1.TaintNodeUnschedulable: // the cluster adds it to nodes that are cordoned
			if node.Spec.Unschedulable {
				takesNone(taint.TimeAdded)
			}
		}
	}
	ready := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	switch {
	case ready < 0:
		takesNone(nil)
	case node.Status.Conditions[ready].Status != corev1.ConditionTrue:
		takesNone(&node.Status.Conditions[ready].LastTransitionTime)
	}
	return state
}
