// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// TestEveryEditIsObserved: whatever state a sandbox is in, after an edit the status and each
// condition reach the new generation. kubectl wait hangs otherwise.
func TestEveryEditIsObserved(t *testing.T) {
	phases := []v1alpha1.SandboxPhase{
		"", v1alpha1.SandboxPending, v1alpha1.SandboxRunning, v1alpha1.SandboxPaused, v1alpha1.SandboxResuming, v1alpha1.SandboxUpgrading,
		v1alpha1.SandboxSucceeded, v1alpha1.SandboxFailed, v1alpha1.SandboxRecycling, v1alpha1.SandboxTerminating,
	}
	older := func(s *v1alpha1.Sandbox) {
		s.Status.ObservedGeneration = s.Generation - 1
		for i := range s.Status.Conditions {
			s.Status.Conditions[i].ObservedGeneration = s.Generation - 1
		}
	}
	expired := cond(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSandboxExpired, expiredMessage)
	edits := map[string][]func(*v1alpha1.Sandbox){
		"none of its business":   {held(podIsReady, pauseIsDone)},
		"paused":                 {held(podIsReady, pauseIsDone), paused},
		"kept past its end":      {held(expired, pauseIsDone), policy(v1alpha1.ShutdownRetain), due(now.Add(-time.Hour))},
		"kept, moved":            {held(expired, pauseIsDone), policy(v1alpha1.ShutdownRetain), due(now.Add(time.Hour))},
		"kept, moved, paused":    {held(expired, pauseIsDone), policy(v1alpha1.ShutdownRetain), due(now.Add(time.Hour)), paused},
		"runtime set up already": {held(podIsReady, cond(v1alpha1.SandboxConditionRuntimeInitialized, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, ""))},
	}
	everything := held(
		cond(v1alpha1.SandboxConditionResumed, metav1.ConditionTrue, v1alpha1.ReasonCreatePod, ""),
		cond(v1alpha1.SandboxConditionInplaceUpdate, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, ""),
		cond(v1alpha1.SandboxConditionSuspended, metav1.ConditionFalse, v1alpha1.ReasonNotSuspended, ""),
		cond(v1alpha1.SandboxConditionFinished, metav1.ConditionTrue, v1alpha1.ReasonPodFailed, ""),
		cond("OfAClient", metav1.ConditionTrue, "Said", ""))
	for _, is := range phases {
		for name, edit := range edits {
			for _, pod := range []*corev1.Pod{nil, newPod(runs(corev1.ConditionTrue))} {
				for _, family := range []func(*v1alpha1.Sandbox){func(*v1alpha1.Sandbox) {}, inAgents} {
					t.Run(fmt.Sprintf("%s, %s, pod %t", is, name, pod != nil), func(t *testing.T) {
						changes := append([]func(*v1alpha1.Sandbox){phase(is), family}, edit...)
						o := watch(pod, true, append(changes, everything, older)...)
						p := decide(o)
						if p.action == actionReadFromServer || p.action == actionInspect {
							t.Fatalf("the test knows too little: %d", p.action)
						}
						if !claims.IsObserved(&p.status, o.sandbox.Generation) {
							t.Errorf("generation %d is not observed: %+v", o.sandbox.Generation, p.status)
						}
					})
				}
			}
		}
	}
}
