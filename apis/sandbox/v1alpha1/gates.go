// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsGated reports whether the pod of a sandbox waits behind a scheduling gate. There is no
// point in replacing such a sandbox: the pod of another one would get the same gate.
func IsGated(sandbox *Sandbox) bool {
	return meta.IsStatusConditionTrue(sandbox.Status.Conditions, SandboxConditionSchedulingGated)
}

// GatesRemovedAt returns when the scheduling gates of the pod of a sandbox were removed,
// and the zero time if it still has gates or never had any. Timeouts of a start count from
// that time.
func GatesRemovedAt(sandbox *Sandbox) time.Time {
	gated := meta.FindStatusCondition(sandbox.Status.Conditions, SandboxConditionSchedulingGated)
	if gated == nil || gated.Status != metav1.ConditionFalse {
		return time.Time{}
	}
	return gated.LastTransitionTime.Time
}
