// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// TestTimesAreObserved: a change of the times alone is observed at once, unless a controller
// has to act on it or has not seen an earlier change.
func TestTimesAreObserved(t *testing.T) {
	later := func(s *v1alpha1.Sandbox) { s.Spec.ShutdownTime = at(2 * time.Hour) }
	for name, tc := range map[string]struct {
		stored, change func(*v1alpha1.Sandbox)
		want           bool
	}{
		"later":                   {change: later, want: true},
		"sooner":                  {change: func(s *v1alpha1.Sandbox) { s.Spec.ShutdownTime = at(time.Second) }, want: true},
		"no end any more":         {change: func(s *v1alpha1.Sandbox) { s.Spec.ShutdownTime = nil }, want: true},
		"a pause":                 {change: func(s *v1alpha1.Sandbox) { s.Spec.PauseTime = at(time.Minute) }, want: true},
		"and a label":             {change: func(s *v1alpha1.Sandbox) { later(s); s.Labels = map[string]string{"a": "b"} }, want: true},
		"an end that has come":    {change: func(s *v1alpha1.Sandbox) { s.Spec.ShutdownTime = at(0) }},
		"an end that has passed":  {change: func(s *v1alpha1.Sandbox) { s.Spec.ShutdownTime = at(-time.Hour) }},
		"a pause that has passed": {change: func(s *v1alpha1.Sandbox) { s.Spec.PauseTime = at(-time.Hour) }},
		"later, when it was over": {stored: func(s *v1alpha1.Sandbox) { s.Spec.ShutdownTime = at(-time.Second) }, change: later},
		"kept after its end": {stored: func(s *v1alpha1.Sandbox) {
			s.Status.Conditions[0].Reason, s.Status.Conditions[0].Status = v1alpha1.ReasonSandboxExpired, metav1.ConditionFalse
		}, change: later},
		"not observed before":           {stored: func(s *v1alpha1.Sandbox) { s.Status.ObservedGeneration = 2 }, change: later},
		"a condition not observed":      {stored: func(s *v1alpha1.Sandbox) { s.Status.Conditions[0].ObservedGeneration = 2 }, change: later},
		"being deleted":                 {stored: func(s *v1alpha1.Sandbox) { s.DeletionTimestamp = at(0) }, change: later},
		"and paused":                    {change: func(s *v1alpha1.Sandbox) { later(s); s.Spec.Paused = true }},
		"and another template":          {change: func(s *v1alpha1.Sandbox) { later(s); s.Spec.Template.Raw = []byte(`{"spec":{}}`) }},
		"and what is done at the end":   {change: func(s *v1alpha1.Sandbox) { later(s); s.Spec.ShutdownPolicy = v1alpha1.ShutdownRetain }},
		"a status that the client sent": {change: func(s *v1alpha1.Sandbox) { later(s); s.Status.Phase = v1alpha1.SandboxFailed }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			stored := registrytest.NewSandbox("a")
			stored.Generation, stored.Spec.ShutdownTime = 3, at(time.Hour)
			stored.Status = v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxRunning, ObservedGeneration: 3, Conditions: []metav1.Condition{{
				Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodReady, ObservedGeneration: 3,
			}}}
			if tc.stored != nil {
				tc.stored(stored)
			}
			want := stored.Status.DeepCopy()
			if tc.want {
				want.ObservedGeneration, want.Conditions[0].ObservedGeneration = 4, 4
			}
			before, updated := stored.DeepCopy(), stored.DeepCopy()
			tc.change(updated)

			newStrategy().PrepareForUpdate(t.Context(), updated, stored)

			if diff := cmp.Diff(*want, updated.Status); diff != "" || updated.Generation != 4 {
				t.Errorf("generation %d, status (-want +got):\n%s", updated.Generation, diff)
			}
			if diff := cmp.Diff(before, stored); diff != "" {
				t.Errorf("stored object was changed (-before +after):\n%s", diff)
			}
		})
	}
}
