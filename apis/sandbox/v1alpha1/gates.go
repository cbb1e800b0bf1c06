// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsGated reports whether the pod of a sandbox waits behind a scheduling gate. Another
// sandbox in its place would wait in the same way.
func IsGated(sandbox *Sandbox) bool {
	return meta.IsStatusConditionTrue(sandbox.Status.Conditions, SandboxConditionSchedulingGated)
}

// GatesRemovedAt returns when the scheduling gates of the pod of a sandbox were removed,
// and the zero time if it has some, or had none. How long a start takes counts from then.
func GatesRemovedAt(sandbox *Sandbox) time.Time {
	gated := meta.FindStatusCondition(sandbox.Status.Conditions, SandboxConditionSchedulingGated)
	if gated == nil || gated.Status != metav1.ConditionFalse {
		return time.Time{}
	}
	return gated.LastTransitionTime.Time
}
