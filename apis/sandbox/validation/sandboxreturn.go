// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// ReturnsToPool reports whether an update is the one that gives a recycled sandbox back to
// a pool: the sandbox is in the phase Recycling and its pod is gone, which only controllers
// write, and the update makes a set its controller and leaves nothing of a claim. Such an
// update may end a binding and change what is immutable otherwise. Who may make a set the
// controller of a sandbox is for others to judge.
func ReturnsToPool(sandbox, old *v1alpha1.Sandbox) bool {
	recycling := apimeta.FindStatusCondition(old.Status.Conditions, v1alpha1.SandboxConditionRecycling)
	return old.Status.Phase == v1alpha1.SandboxRecycling &&
		recycling != nil && recycling.Reason == v1alpha1.ReasonRecyclingCompleted &&
		v1alpha1.PoolOf(old) == nil && v1alpha1.PoolOf(sandbox) != nil && isUnclaimed(sandbox)
}

// isUnclaimed reports whether a sandbox has none of the marks of claims.
func isUnclaimed(sandbox *v1alpha1.Sandbox) bool {
	for _, key := range []string{v1alpha1.AnnotationLock, v1alpha1.AnnotationOwner, v1alpha1.AnnotationStarting} {
		if _, ok := sandbox.Annotations[key]; ok {
			return false
		}
	}
	_, named := sandbox.Labels[v1alpha1.LabelClaimName]
	return !named && sandbox.Labels[v1alpha1.LabelSandboxClaimed] == v1alpha1.ClaimedFalse
}
