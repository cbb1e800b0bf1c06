// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	// ConditionReplicaFailure is true on a SandboxSet while its pool cannot be kept
	// as it should be, and absent otherwise. Name and meaning are those of
	// ReplicaSets.
	ConditionReplicaFailure = "ReplicaFailure"
	// ReasonFailedWrite is a reason of ConditionReplicaFailure: a sandbox could not be
	// created or deleted. The message is the server's.
	ReasonFailedWrite = "FailedWrite"
	// ReasonSandboxesFail is a reason of ConditionReplicaFailure: sandboxes of the
	// current template fail or end, and are replaced at growing intervals.
	ReasonSandboxesFail = "SandboxesFail"
)

// trouble is why a pool cannot be kept as it should be.
type trouble struct{ reason, message string }

func troubleOf(workErr error, pause time.Duration) *trouble {
	switch {
	case workErr != nil:
		return &trouble{ReasonFailedWrite, cutMessage(workErr.Error())}
	case pause > 0:
		return &trouble{ReasonSandboxesFail, "Sandboxes of the current template fail or end and are replaced at growing intervals"}
	}
	return nil
}

// status is what the set's status should say. It is about the pool as this
// reconcile leaves it: what it created counts, what it deleted does not.
func (o *observation) status(c *census, trouble *trouble) v1alpha1.SandboxSetStatus {
	status := *o.set.Status.DeepCopy()
	status.ObservedGeneration = o.set.Generation
	status.Replicas = count(c.unused())
	status.AvailableReplicas = count(len(c.available))
	status.UpdatedReplicas = count(c.updated())
	status.UpdatedAvailableReplicas = count(c.updatedAvailable)
	status.UpdateRevision = o.revision
	status.CurrentRevision = o.holder
	o.setResolved(&status)
	o.setAccepted(&status, c.updatedAvailable)
	status.Selector = labels.SelectorFromValidatedSet(labels.Set{
		v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse,
		v1alpha1.LabelSandboxPool:    o.set.Name,
	}).String()
	if trouble == nil {
		meta.RemoveStatusCondition(&status.Conditions, ConditionReplicaFailure)
		return status
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:               ConditionReplicaFailure,
		Status:             metav1.ConditionTrue,
		Reason:             trouble.reason,
		Message:            trouble.message,
		ObservedGeneration: o.set.Generation,
		LastTransitionTime: metav1.NewTime(o.now),
	})
	return status
}

func count(n int) int32 {
	return int32(max(n, 0))
}

// writeStatus writes the status, if it changed. It returns false where the set
// that it was made from is no longer the current one: then the status would be
// about an old spec, and the new one is on its way into the cache.
func (c *Controller) writeStatus(ctx context.Context, o *observation, status v1alpha1.SandboxSetStatus) (bool, error) {
	if equality.Semantic.DeepEqual(o.set.Status, status) {
		return true, nil
	}
	set := o.set.DeepCopy() // the cache's own object stays as it is
	set.Status = status
	patch := client.MergeFromWithOptions(o.set, client.MergeFromWithOptimisticLock{})
	err := c.client.Status().Patch(ctx, set, patch)
	switch {
	case apierrors.IsConflict(err):
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("writing the status of SandboxSet %s/%s: %w", o.set.Namespace, o.set.Name, err)
	}
	c.reportResolved(o.set, &status)
	return true, nil
}
