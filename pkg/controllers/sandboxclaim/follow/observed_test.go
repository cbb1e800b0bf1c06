// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestExpiredClaimObservesEdits: the conditions of a claim that has expired follow the
// generation of its spec, and those without a generation stay without one.
func TestExpiredClaimObservesEdits(t *testing.T) {
	claim := claimOf("a")
	claim.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{}
	condition(claim, v1alpha1.ClaimConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClaimExpired, "over")
	meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionReady).ObservedGeneration = 1
	claim.Generation, claim.Status.ObservedGeneration = 2, 1
	generations := func() (ready, completed int64) {
		conditions := conditionsOf(claim, nil, now)
		return meta.FindStatusCondition(conditions, v1alpha1.ClaimConditionReady).ObservedGeneration,
			meta.FindStatusCondition(conditions, v1alpha1.ClaimConditionCompleted).ObservedGeneration
	}
	if ready, completed := generations(); ready != 1 || completed != 0 {
		t.Errorf("while the edit is carried out: Ready at %d, Completed at %d", ready, completed)
	}
	claim.Status.ObservedGeneration = 2
	if ready, completed := generations(); ready != 2 || completed != 0 {
		t.Errorf("after that: Ready at %d, Completed at %d; want 2 and none", ready, completed)
	}
}
