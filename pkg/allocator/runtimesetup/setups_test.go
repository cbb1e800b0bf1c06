// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
)

// starting is a sandbox that is being prepared, and has been ready since a time.
func starting(since int64) *v1alpha1.Sandbox {
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Name: "x", UID: "x", Annotations: map[string]string{v1alpha1.AnnotationStarting: "true"},
	}}
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(since, 0),
	})
	return sb
}

// TestRuntimeThatStartedAnew: that a runtime was set up says nothing of the one that took
// its place. It is set up, too, but volumes are not mounted twice.
func TestRuntimeThatStartedAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		mounts  []v1alpha1.CSIMountConfig
		begun   bool
		now     int64
		results int
		failed  bool
	}{
		"the same":                     {nil, true, 1, 1, false},
		"anew":                         {nil, true, 2, 0, false},
		"anew with mounts":             {make([]v1alpha1.CSIMountConfig, 1), true, 2, 1, true},
		"anew before mounts can begin": {make([]v1alpha1.CSIMountConfig, 1), false, 2, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &v1alpha1.SandboxClaim{Spec: v1alpha1.SandboxClaimSpec{DynamicVolumesMount: tc.mounts}}
			s := New()
			call := newSetupCall(claim, starting(1))
			if tc.begun {
				call.result, call.cancel = &plan.SetupResult{}, func() {}
			}
			s.calls["x"] = call
			s.KeepOnly([]*v1alpha1.Sandbox{starting(tc.now)})
			results, _ := s.results()
			if len(results) != tc.results || (results["x"].Failed != nil) != tc.failed {
				t.Errorf("results %+v", results)
			}
		})
	}
}

// TestRestartsReportedDuringASetup: of a sandbox that is older than the count of restarts, the
// count is reported during the setup. That is no restart, and one after it is.
func TestRestartsReportedDuringASetup(t *testing.T) {
	claim := &v1alpha1.SandboxClaim{Spec: v1alpha1.SandboxClaimSpec{DynamicVolumesMount: make([]v1alpha1.CSIMountConfig, 1)}}
	s, call := New(), newSetupCall(claim, starting(1))
	call.cancel = func() {}
	s.calls["x"] = call
	for _, restarts := range []int32{2, 3} {
		sb := starting(1)
		sb.Status.PodInfo.RestartCount = &restarts
		s.KeepOnly([]*v1alpha1.Sandbox{sb})
		if results, _ := s.results(); (results["x"].Failed != nil) != (restarts == 3) {
			t.Errorf("%d restarts: results %+v", restarts, results)
		}
	}
}

// A call is given up when its sandbox has another pod or is not ready any more, and is not
// begun again.
func TestSetupsOfOtherPodsAreGivenUp(t *testing.T) {
	queued := &v1alpha1.Sandbox{}
	queued.UID, queued.Annotations = "uid", map[string]string{v1alpha1.AnnotationStarting: "true"}
	queued.Status.Phase = v1alpha1.SandboxRunning
	queued.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue}}
	queued.Status.PodInfo.PodIP, queued.Status.PodInfo.PodUID = "10.0.0.1", "pod"
	for name, change := range map[string]func(sb *v1alpha1.Sandbox){
		"the same":    func(*v1alpha1.Sandbox) {},
		"another IP":  func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodIP = "10.0.0.2" },
		"another pod": func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodUID = "other" },
		"not ready":   func(sb *v1alpha1.Sandbox) { sb.Status.Conditions = nil },
	} {
		s, canceled := New(), false
		call := newSetupCall(&v1alpha1.SandboxClaim{}, queued)
		call.cancel = func() { canceled = true }
		s.calls["uid"] = call
		sb := queued.DeepCopy()
		change(sb)
		want := name != "the same"
		s.KeepOnly([]*v1alpha1.Sandbox{sb})
		if canceled != want || s.HasCalls() == want {
			t.Errorf("%s: canceled %t, still in hand %t", name, canceled, s.HasCalls())
		}
	}
}
