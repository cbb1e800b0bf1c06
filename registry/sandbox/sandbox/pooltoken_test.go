// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
)

// TestRestartsInAPool: a container that was restarted has no token, whether or not a controller saw
// its pod unready.
func TestRestartsInAPool(t *testing.T) {
	now := time.Unix(1e9, 0)
	status := sandbox.NewStatusStrategy(sandbox.NewStrategy(runtime.NewScheme(), clocktesting.NewFakePassiveClock(now)))
	isReady := func(sb *v1alpha1.Sandbox, value metav1.ConditionStatus) {
		meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{Type: v1alpha1.SandboxConditionReady, Status: value})
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.Sandbox)
		claims bool
		again  bool
	}{
		"nothing":               {func(*v1alpha1.Sandbox) {}, false, false},
		"unready":               {func(sb *v1alpha1.Sandbox) { isReady(sb, metav1.ConditionFalse) }, false, true},
		"restarted":             {func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.RestartCount = new(int32(1)) }, false, true},
		"not restarted":         {func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.RestartCount = new(int32(0)) }, false, false},
		"restarted for a claim": {func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.RestartCount = new(int32(1)) }, true, false},
	} {
		stored := &v1alpha1.Sandbox{}
		stored.OwnerReferences = []metav1.OwnerReference{{APIVersion: "agents.kruise.io/v1alpha1", Kind: "SandboxSet", Name: "pool", Controller: new(true)}}
		stored.Status.Phase = v1alpha1.SandboxRunning
		isReady(stored, metav1.ConditionTrue)
		claims.BeginPoolSetup(stored, now)
		claims.EndPoolSetup(stored, "1/pod.0", now)
		if test.claims {
			stored.OwnerReferences = nil
		}
		updated := stored.DeepCopy()
		test.change(updated)
		status.PrepareForUpdate(t.Context(), updated, stored)
		if claims.SetupPending(&updated.Status) != test.again {
			t.Errorf("%s: it says %+v", name, updated.Status.Conditions)
		}
	}
}
