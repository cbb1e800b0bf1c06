// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// status is what the set's status should say. It is about the pool as this
// reconcile leaves it: what it created counts, what it deleted does not.
func (o *observation) status(c *poolCounts, replicaFailure *problem) v1alpha1.SandboxSetStatus {
	status := *o.set.Status.DeepCopy()
	status.ObservedGeneration = o.set.Generation
	status.Replicas = int32(c.unused())
	status.AvailableReplicas = int32(len(c.available))
	status.UpdatedReplicas = int32(c.updated())
	status.UpdatedAvailableReplicas = int32(c.updatedAvailable)
	status.UpdateRevision = o.revision
	status.CurrentRevision = o.currentRevision
	status.Selector = labels.SelectorFromValidatedSet(labels.Set{
		v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse,
		v1alpha1.LabelSandboxPool:    o.set.Name,
	}).String()
	o.setResolved(&status)
	o.setAccepted(&status, c.updatedAvailable)
	o.setAvailable(&status, c, o.findStartFailure(c))
	o.setRolledOut(&status, c)
	o.setScalingLimited(&status, c)
	if replicaFailure == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.SetConditionReplicaFailure)
	} else {
		o.setCondition(&status, v1alpha1.SetConditionReplicaFailure, metav1.ConditionTrue, replicaFailure.reason, replicaFailure.message)
	}
	return status
}

// gauges are the figures of the pool.
func (o *observation) gauges(c *poolCounts) poolGauges {
	g := poolGauges{
		replicas: o.replicas(), available: len(c.available), creating: len(c.creating) + c.unseenCreates, ended: len(c.ended),
	}
	if claims.Burst(o.set) > 0 {
		g.burst = &o.burst.wanted
	}
	return g
}
