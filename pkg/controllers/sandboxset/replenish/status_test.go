// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestStatus(t *testing.T) {
	set := makeSet(2)
	set.Generation = 7
	o := &observation{set: set, target: targetOf("abc"), pool: pool{sandboxes: sandboxes(available("a").revision("abc"))}, now: epoch}

	want := v1alpha1.SandboxSetStatus{
		ObservedGeneration: 7,
		Replicas:           1, AvailableReplicas: 1, UpdatedReplicas: 1, UpdatedAvailableReplicas: 1,
		UpdateRevision: "abc", CurrentRevision: "pool-abc",
		Selector: "agents.kruise.io/sandbox-claimed=false,agents.kruise.io/sandbox-pool=pool",
	}
	got := builderOf(o).build()
	got.Conditions = nil // see TestAvailable, TestRolledOut and TestScalingLimited
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	b := builderOf(o)
	b.replicaFailure = &problem{reasonFailedWrite, "quota"}
	failed := b.build()
	told := meta.FindStatusCondition(failed.Conditions, v1alpha1.SetConditionReplicaFailure)
	if told == nil || told.Message != "quota" || told.ObservedGeneration != 7 || !told.LastTransitionTime.Time.Equal(epoch) {
		t.Errorf("conditions after a failure: %+v", failed.Conditions)
	}
	set.Status = failed
	if got := builderOf(o).build(); meta.FindStatusCondition(got.Conditions, v1alpha1.SetConditionReplicaFailure) != nil {
		t.Errorf("conditions after a success: %+v", got.Conditions)
	}
}
