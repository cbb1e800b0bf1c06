// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func sandbox(t *testing.T, change func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	t.Helper()
	s := &v1alpha1.Sandbox{ObjectMeta: meta("pool-abcde"), Spec: v1alpha1.SandboxSpec{
		EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{Template: rawTemplate(t)},
	}}
	if change != nil {
		change(s)
	}
	return s
}

func TestValidateSandbox(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.Sandbox)
		want   []string
	}{
		"minimal":  {},
		"shutdown": {change: func(s *v1alpha1.Sandbox) { s.Spec.ShutdownTime = new(metav1.Unix(1, 0)) }},
		"new template": {change: func(s *v1alpha1.Sandbox) {
			s.Spec.Template = rawJSON("{\"spec\":{\"containers\":[{\"name\":\"a\",\"image\":\"b\"}]}}")
		}},
		"no template": {
			change: func(s *v1alpha1.Sandbox) { s.Spec.Template = nil },
			want:   []string{"spec.template: Required value: template is required"},
		},
		"bad template": {
			change: func(s *v1alpha1.Sandbox) { s.Spec.Template = rawJSON("[]") },
			want:   []string{"spec.template: Invalid value: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := sandbox(t, tc.change)
			expect(t, ValidateSandbox(changed), tc.want)
			expect(t, ValidateSandboxUpdate(changed, sandbox(t, nil)), tc.want)
		})
	}
	expect(t, ValidateSandbox(sandbox(t, func(s *v1alpha1.Sandbox) { s.Name = "a_b" })),
		[]string{"metadata.name: Invalid value: "})
}

func TestUnservedInSandbox(t *testing.T) {
	tests := map[string]func(*v1alpha1.SandboxSpec){
		"paused":             func(s *v1alpha1.SandboxSpec) { s.Paused = true },
		"pauseTime":          func(s *v1alpha1.SandboxSpec) { s.PauseTime = new(metav1.Unix(1, 0)) },
		"pauseStrategy":      func(s *v1alpha1.SandboxSpec) { s.PauseStrategy = &v1alpha1.PauseStrategy{} },
		"persistentContents": func(s *v1alpha1.SandboxSpec) { s.PersistentContents = []string{"ip"} },
		"runtimes":           func(s *v1alpha1.SandboxSpec) { s.Runtimes = make([]v1alpha1.RuntimeConfig, 1) },
		"lifecycle":          func(s *v1alpha1.SandboxSpec) { s.Lifecycle = &v1alpha1.SandboxLifecycle{} },
		"upgradePolicy":      func(s *v1alpha1.SandboxSpec) { s.UpgradePolicy = &v1alpha1.SandboxUpgradePolicy{} },
		"templateRef": func(s *v1alpha1.SandboxSpec) {
			s.Template, s.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "t"}
		},
		"volumeClaimTemplates": func(s *v1alpha1.SandboxSpec) { s.VolumeClaimTemplates = make([]runtime.RawExtension, 1) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			expect(t, ValidateSandbox(sandbox(t, func(s *v1alpha1.Sandbox) { change(&s.Spec) })),
				[]string{"spec." + name + ": " + yet})
		})
	}
	if got := len(unservedInSandbox(&v1alpha1.SandboxSpec{})); got != len(tests) {
		t.Errorf("%d unserved fields, %d tested", got, len(tests))
	}
}

func TestValidateSandboxStatusUpdate(t *testing.T) {
	tests := map[string]struct {
		status v1alpha1.SandboxStatus
		want   []string
	}{
		"empty": {},
		"running": {status: v1alpha1.SandboxStatus{
			Phase: v1alpha1.SandboxRunning, SandboxIP: "10.0.0.1", Conditions: []metav1.Condition{condition()},
		}},
		"all wrong": {
			status: v1alpha1.SandboxStatus{
				Phase: "Sleeping", ObservedGeneration: -1, RecycledCount: -1,
				Conditions: []metav1.Condition{condition(), condition()},
			},
			want: []string{
				"status.phase: Unsupported value: \"Sleeping\"",
				"status.observedGeneration: Invalid value: -1",
				"status.recycledCount: Invalid value: -1",
				"status.conditions[1]: Duplicate value",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := sandbox(t, func(s *v1alpha1.Sandbox) { s.Status = tc.status })
			expect(t, ValidateSandboxStatusUpdate(changed, sandbox(t, nil)), tc.want)
		})
	}
}
