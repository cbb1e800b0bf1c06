// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
)

const (
	// conditionReplicaFailure is true on a SandboxSet while its pool cannot be kept
	// as it should be, and absent otherwise. Name and meaning are those of
	// ReplicaSets.
	conditionReplicaFailure = "ReplicaFailure"
	// reasonFailedWrite is a reason of conditionReplicaFailure: a sandbox could not be
	// created or deleted. The message is the server's.
	reasonFailedWrite = "FailedWrite"
	// reasonSandboxesFail is a reason of conditionReplicaFailure: sandboxes of the
	// current template fail or end, and are replaced at growing intervals.
	reasonSandboxesFail = "SandboxesFail"
)

// replicaFailure is what the condition ReplicaFailure should say, or nil.
func replicaFailure(writeErr error, backoff time.Duration) *problem {
	switch {
	case writeErr != nil:
		return newProblem(reasonFailedWrite, writeErr)
	case backoff > 0:
		return &problem{reasonSandboxesFail, "Sandboxes of the current template fail or end and are replaced at growing intervals"}
	}
	return nil
}

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
		meta.RemoveStatusCondition(&status.Conditions, conditionReplicaFailure)
	} else {
		o.setCondition(&status, conditionReplicaFailure, metav1.ConditionTrue, replicaFailure.reason, replicaFailure.message)
	}
	return status
}

func (o *observation) setCondition(status *v1alpha1.SandboxSetStatus, kind string, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: message,
		ObservedGeneration: o.set.Generation,
		LastTransitionTime: metav1.NewTime(o.now),
	})
}

// setResolved sets whether the template that the spec refers to could be used.
func (o *observation) setResolved(status *v1alpha1.SandboxSetStatus) {
	switch {
	case o.set.Spec.Template != nil:
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.SetConditionTemplateResolved)
	case o.templateProblem != nil:
		o.setCondition(status, v1alpha1.SetConditionTemplateResolved, metav1.ConditionFalse, o.templateProblem.reason, o.templateProblem.message)
	default:
		message := ""
		if len(o.chain) > 0 {
			message = fmt.Sprintf("The pod template is that of %s", strings.Join(o.chain, " -> "))
		}
		o.setCondition(status, v1alpha1.SetConditionTemplateResolved, metav1.ConditionTrue, v1alpha1.ReasonResolved, message)
	}
}

// setAccepted sets whether the cluster takes pods of the revision: surely, once one
// is available, whatever comes later. What was reported of the same revision before
// stays, because a restart forgets it otherwise; and it stays as it is, with the
// generation that it is about, while the set serves on at that revision because what
// it asks for now cannot be used, or not be held yet.
func (o *observation) setAccepted(status *v1alpha1.SandboxSetStatus, updatedAvailable int) {
	if !o.cluster || o.templateProblem != nil || o.templateErr != nil {
		return
	}
	const kind = v1alpha1.SetConditionTemplateAccepted
	before := meta.FindStatusCondition(o.set.Status.Conditions, kind)
	if o.set.Status.UpdateRevision != o.revision {
		before = nil
	}
	switch {
	case updatedAvailable > 0,
		before != nil && before.Status == metav1.ConditionTrue,
		o.dryRun != nil && len(o.dryRun.warnings) == 0:
		o.setCondition(status, kind, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
	case o.dryRun != nil:
		o.setCondition(status, kind, metav1.ConditionUnknown, v1alpha1.ReasonWarned,
			report.Truncate(strings.Join(o.dryRun.warnings, "; "), maxMessage))
	case before != nil:
		o.setCondition(status, kind, before.Status, before.Reason, before.Message)
	default:
		meta.RemoveStatusCondition(&status.Conditions, kind)
	}
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
