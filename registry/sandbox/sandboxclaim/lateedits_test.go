// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestWarningsOfLateEdits: an edit of a claim that has ended is warned of where it has no
// effect. Each field of the spec is either such a field, or it has an effect on such a
// claim, is immutable then, or is warned of whenever it is set.
func TestWarningsOfLateEdits(t *testing.T) {
	minute, at := &metav1.Duration{Duration: time.Minute}, &metav1.Time{Time: time.Now().Add(time.Hour)}
	warned := map[string]func(*v1alpha1.SandboxClaimSpec){
		"shutdownTime": func(s *v1alpha1.SandboxClaimSpec) { s.ShutdownTime = at },
		"pauseTime":    func(s *v1alpha1.SandboxClaimSpec) { s.PauseTime = at },
		"inplaceUpdate": func(s *v1alpha1.SandboxClaimSpec) {
			s.InplaceUpdate = &v1alpha1.SandboxClaimInplaceUpdateOptions{Image: "a"}
		},
		"claimTimeout":         func(s *v1alpha1.SandboxClaimSpec) { s.ClaimTimeout = minute },
		"waitReadyTimeout":     func(s *v1alpha1.SandboxClaimSpec) { s.WaitReadyTimeout = minute },
		"reserveFailedSandbox": func(s *v1alpha1.SandboxClaimSpec) { s.ReserveFailedSandbox = true },
	}
	const effective = "labels annotations additionalPodMetadata ttlAfterCompleted lifecycle "
	const immutable = "templateName sandboxTemplateRef warmPool warmPoolRef createOnNoStock onShortage replicas allocation reclaimPolicy " +
		"env envVars volumeClaimTemplates dynamicVolumesMount skipInitRuntime "
	others := strings.Fields(effective + immutable + "runtimes")
	spec := reflect.TypeFor[v1alpha1.SandboxClaimSpec]()
	for field := range spec.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		change := warned[name]
		if change == nil {
			if !slices.Contains(others, name) {
				t.Errorf("spec.%s: say here what an edit of it does to a claim that has ended", name)
			}
			continue
		}
		for phase, want := range map[v1alpha1.SandboxClaimPhase]int{"Claiming": 0, "Completed": 1} {
			claim, old := &v1alpha1.SandboxClaim{}, &v1alpha1.SandboxClaim{}
			old.Status.Phase = phase
			change(&claim.Spec)
			got := newStrategy().WarningsOnUpdate(t.Context(), claim, old)
			if len(got) != want || want > 0 && !strings.HasPrefix(got[0], "spec."+name+": has no effect any more") {
				t.Errorf("spec.%s of a claim that is %s: %q", name, phase, got)
			}
			if got := newStrategy().WarningsOnUpdate(t.Context(), old, old); len(got) > 0 {
				t.Errorf("no edit of a claim that is %s: %q", phase, got)
			}
		}
	}
}

// TestWarningOfAnEndThatIsMoved: a lifecycle that is over stays over.
func TestWarningOfAnEndThatIsMoved(t *testing.T) {
	claim := &v1alpha1.SandboxClaim{}
	claim.Spec.TTLAfterCompleted = &metav1.Duration{Duration: -1}
	claim.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{ShutdownTime: &metav1.Time{Time: time.Now().Add(-time.Hour)}}
	moved := claim.DeepCopy()
	moved.Spec.Lifecycle.ShutdownTime = &metav1.Time{Time: time.Now().Add(time.Hour)}
	if got := newStrategy().WarningsOnUpdate(t.Context(), moved, claim); len(got) > 0 {
		t.Errorf("before its end: %q", got)
	}
	claim.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClaimConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonClaimExpired}}
	got := newStrategy().WarningsOnUpdate(t.Context(), moved, claim)
	if len(got) != 1 || !strings.HasPrefix(got[0], "spec.lifecycle.shutdownTime: has no effect any more") {
		t.Errorf("after its end: %q", got)
	}
}
