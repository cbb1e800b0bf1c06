// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func template(t *testing.T, change func(*v1alpha1.SandboxTemplate)) *v1alpha1.SandboxTemplate {
	t.Helper()
	s := &v1alpha1.SandboxTemplate{ObjectMeta: meta("template"), Spec: v1alpha1.SandboxTemplateSpec{
		EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{Template: rawTemplate(t)},
	}}
	if change != nil {
		change(s)
	}
	return s
}

func TestValidateSandboxTemplate(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.SandboxTemplate)
		want   []string
	}{
		"minimal":            {},
		"no fresh sandboxes": {change: func(s *v1alpha1.SandboxTemplate) { s.Spec.MaxFreshSandboxes = ptr.To(int32(0)) }},
		"too many fresh sandboxes": {
			change: func(s *v1alpha1.SandboxTemplate) { s.Spec.MaxFreshSandboxes = ptr.To(int32(10001)) },
			want:   []string{"spec.maxFreshSandboxes: Invalid value: 10001: must be from 0 to 10000"},
		},
		"long name": {change: func(s *v1alpha1.SandboxTemplate) { s.Name = longName }},
		"no template": {
			change: func(s *v1alpha1.SandboxTemplate) { s.Spec.Template = nil },
			want:   []string{"spec.template: Required value: template is required"},
		},
		"bad template": {
			change: func(s *v1alpha1.SandboxTemplate) { s.Spec.Template = rawJSON("{\"spec\":{}}") },
			want:   []string{"spec.template.spec.containers: Required value: at least one container is required"},
		},
		"reference": {change: func(s *v1alpha1.SandboxTemplate) {
			s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "base"}
		}},
		"reference to a PodTemplate of its own name": {change: func(s *v1alpha1.SandboxTemplate) {
			s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: s.Name, Kind: "PodTemplate"}
		}},
		"reference to itself": {
			change: func(s *v1alpha1.SandboxTemplate) {
				s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: s.Name}
			},
			want: []string{"spec.templateRef.name: Invalid value: \"template\": a template cannot refer to itself"},
		},
		"template and reference": {
			change: func(s *v1alpha1.SandboxTemplate) { s.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: "base"} },
			want:   []string{"spec.templateRef: Forbidden: templateRef and podtemplate is mutual exclusive"},
		},
		"pause": {change: func(s *v1alpha1.SandboxTemplate) {
			s.Spec.PauseStrategy = &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyStop}
		}},
		"hibernation": {
			change: func(s *v1alpha1.SandboxTemplate) {
				s.Spec.PauseStrategy = &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyHibernate}
			},
			want: []string{"spec.pauseStrategy.type: " + yet},
		},
		"volume that nothing mounts": {
			change: func(s *v1alpha1.SandboxTemplate) {
				s.Spec.VolumeClaimTemplates = []runtime.RawExtension{*rawJSON(dataClaim)}
			},
		},
		"volumes with a reference, which may mount them": {change: func(s *v1alpha1.SandboxTemplate) {
			s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "base"}
			s.Spec.VolumeClaimTemplates = []runtime.RawExtension{*rawJSON(dataClaim)}
		}},
		"volume without a size": {
			change: func(s *v1alpha1.SandboxTemplate) {
				s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "base"}
				s.Spec.VolumeClaimTemplates = []runtime.RawExtension{*rawJSON(`{"metadata":{"name":"data"}}`)}
			},
			want: []string{"spec.volumeClaimTemplates[0].spec.resources.requests[storage]: Required value"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := template(t, tc.change)
			expect(t, ValidateSandboxTemplate(changed), tc.want)
			old := template(t, func(s *v1alpha1.SandboxTemplate) { s.Name = changed.Name })
			expect(t, ValidateSandboxTemplateUpdate(changed, old), tc.want)
		})
	}
	expect(t, ValidateSandboxTemplate(template(t, func(s *v1alpha1.SandboxTemplate) { s.Name = "a_b" })),
		[]string{"metadata.name: Invalid value: "})
}

// TestUnmountedWarnings: a volume that no container mounts is taken, with a warning.
func TestUnmountedWarnings(t *testing.T) {
	embedded := template(t, func(s *v1alpha1.SandboxTemplate) {
		s.Spec.VolumeClaimTemplates = []runtime.RawExtension{*rawJSON(dataClaim)}
	}).Spec.EmbeddedSandboxTemplate
	want := []string{"spec.volumeClaimTemplates[0].metadata.name: no container of the template mounts data"}
	if diff := cmp.Diff(want, UnmountedWarnings(&embedded)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	embedded.VolumeClaimTemplates = nil
	if got := UnmountedWarnings(&embedded); len(got) > 0 {
		t.Errorf("without volumes: %q", got)
	}
}

func TestValidateInjectionPolicies(t *testing.T) {
	for _, policy := range append(injectionPolicies, "") {
		expect(t, ValidateSandboxTemplate(template(t, func(s *v1alpha1.SandboxTemplate) {
			s.Spec.EnvVarsInjectionPolicy, s.Spec.VolumeClaimTemplatesPolicy = policy, policy
		})), nil)
	}
	bad := template(t, func(s *v1alpha1.SandboxTemplate) {
		s.Spec.EnvVarsInjectionPolicy, s.Spec.VolumeClaimTemplatesPolicy = "allowed", "Always"
	})
	expect(t, ValidateSandboxTemplate(bad), []string{
		"spec.envVarsInjectionPolicy: Unsupported value: \"allowed\": supported values: \"Allowed\", \"Overrides\", \"Disallowed\"",
		"spec.volumeClaimTemplatesPolicy: Unsupported value: \"Always\"",
	})
}
