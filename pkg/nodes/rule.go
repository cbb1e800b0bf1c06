// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The taints by which autoscalers cordon nodes that they are about to remove.
const (
	taintClusterAutoscaler = "ToBeDeletedByClusterAutoscaler"
	taintKarpenter         = "karpenter.sh/disrupted"
)

// TakePods reports whether a node takes pods: it is ready, and neither cordoned nor about
// to be removed. Other taints say which pods it takes, and nothing of its future.
func TakePods(node *corev1.Node) bool {
	if node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		return false
	}
	if slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == taintClusterAutoscaler || taint.Key == taintKarpenter
	}) {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
