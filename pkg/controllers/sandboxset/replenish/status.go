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

// statusBuilder makes the status of a set from what a reconcile has found and done.
type statusBuilder struct {
	o      *observation
	counts *poolCounts
	// startFailure is why sandboxes cannot start or be made, or nil.
	startFailure *startFailure
	// isFailing is true while sandboxes of the target revision fail, see backoff.
	isFailing bool
	// replicaFailure is what the condition ReplicaFailure says, or nil.
	replicaFailure *problem
	status         v1alpha1.SandboxSetStatus
}

// build returns what the set's status should say. It is about the pool as this
// reconcile leaves it: what it created counts, what it deleted does not.
func (b *statusBuilder) build() v1alpha1.SandboxSetStatus {
	b.status = *b.o.set.Status.DeepCopy()
	b.status.ObservedGeneration = b.o.set.Generation
	b.status.Replicas = int32(b.counts.unused())
	b.status.AvailableReplicas = int32(len(b.counts.available))
	b.status.UpdatedReplicas = int32(b.counts.updated())
	b.status.UpdatedAvailableReplicas = int32(b.counts.updatedAvailable)
	b.status.UpdateRevision = b.o.target.revision
	b.status.CurrentRevision = b.o.target.currentRevision
	b.status.Selector = labels.SelectorFromValidatedSet(labels.Set{
		v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse,
		v1alpha1.LabelSandboxPool:    b.o.set.Name,
	}).String()
	b.setResolved()
	b.setAccepted()
	b.setAvailable()
	b.setRolledOut()
	b.setScalingLimited()
	if b.replicaFailure == nil {
		meta.RemoveStatusCondition(&b.status.Conditions, v1alpha1.SetConditionReplicaFailure)
	} else {
		b.setCondition(v1alpha1.SetConditionReplicaFailure, metav1.ConditionTrue, b.replicaFailure.reason, b.replicaFailure.message)
	}
	return b.status
}

// gaugesOf are the figures of a pool.
func gaugesOf(o *observation, c *poolCounts) poolGauges {
	g := poolGauges{
		replicas: o.replicas(), available: len(c.available), creating: len(c.creating) + c.unseenCreates, ended: len(c.ended),
	}
	if claims.Burst(o.set) > 0 {
		g.burst = &o.burst.wanted
	}
	return g
}
