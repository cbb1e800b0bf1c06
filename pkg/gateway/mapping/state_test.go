// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestStateOf: what has ended has none.
func TestStateOf(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Sandbox)
		want   E2BState
	}{
		"running":         {nil, StateRunning},
		"paused":          {func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true }, StatePaused},
		"being resumed":   {func(sb *v1alpha1.Sandbox) { sb.Status.Phase = v1alpha1.SandboxResuming }, StatePaused},
		"not ready":       {func(sb *v1alpha1.Sandbox) { sb.Status.Conditions = nil }, StatePaused},
		"failed":          {func(sb *v1alpha1.Sandbox) { sb.Status.Phase = v1alpha1.SandboxFailed }, StateGone},
		"recycling":       {func(sb *v1alpha1.Sandbox) { sb.Status.Phase = v1alpha1.SandboxRecycling }, StateGone},
		"being deleted":   {func(sb *v1alpha1.Sandbox) { sb.DeletionTimestamp = at(0) }, StateGone},
		"its time is up":  {func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = at(0) }, StateGone},
		"it is not, yet":  {func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = at(time.Second) }, StateRunning},
		"paused and dead": {func(sb *v1alpha1.Sandbox) { sb.Spec.Paused, sb.Status.Phase = true, v1alpha1.SandboxFailed }, StateGone},
	} {
		if got := StateOf(sandbox(tc.change), now); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestRunningCanBeUsed: in each phase, whatever the spec asks for, a sandbox is reported as
// running if and only if its ports are reached, and as paused by a pause if and only if that is
// complete.
func TestRunningCanBeUsed(t *testing.T) {
	phases := []v1alpha1.SandboxPhase{
		"", v1alpha1.SandboxPending, v1alpha1.SandboxRunning, v1alpha1.SandboxPaused, v1alpha1.SandboxResuming, v1alpha1.SandboxUpgrading,
		v1alpha1.SandboxSucceeded, v1alpha1.SandboxFailed, v1alpha1.SandboxRecycling, v1alpha1.SandboxTerminating, "Unknown",
	}
	for _, phase := range phases {
		for bits := range 8 {
			spec, ready, down := bits&1 != 0, bits&2 != 0, bits&4 != 0
			sb := sandbox(func(sb *v1alpha1.Sandbox) {
				sb.Status.Phase, sb.Spec.Paused = phase, spec
				sb.Status.Conditions = nil
				for kind, is := range map[string]bool{v1alpha1.SandboxConditionReady: ready, v1alpha1.SandboxConditionPaused: down} {
					status := metav1.ConditionFalse
					if is {
						status = metav1.ConditionTrue
					}
					sb.Status.Conditions = append(sb.Status.Conditions, metav1.Condition{Type: kind, Status: status})
				}
			})
			if running := StateOf(sb, now) == StateRunning; running != (v1alpha1.StateOf(sb, now) == v1alpha1.StateRunning) {
				t.Errorf("phase %q, paused %t, ready %t: running is %t", phase, spec, ready, running)
			}
			if paused := IsPaused(sb); paused != (phase == v1alpha1.SandboxPaused && spec && down) {
				t.Errorf("phase %q, paused %t, stopped %t: the pause is complete: %t", phase, spec, down, paused)
			}
		}
	}
}
