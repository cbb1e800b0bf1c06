// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate_test

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxtemplate"
)

// strict finds something wrong with every template, and with those who use it.
type strict struct{}

func (strict) ValidateTemplate(_ context.Context, template *v1alpha1.SandboxTemplate) (field.ErrorList, []string) {
	return field.ErrorList{field.Invalid(field.NewPath("spec"), template.Name, "bad")}, []string{"checked"}
}

func (strict) WarnOfSets(context.Context, *v1alpha1.SandboxTemplate) []string {
	return []string{"used"}
}

func (strict) WarnOfDeletion(_ context.Context, namespace string, templates []string) []string {
	return []string{namespace + "/" + strings.Join(templates, ",") + " in use"}
}

// heard keeps warnings.
type heard struct{ texts []string }

func (h *heard) AddWarning(_, text string) { h.texts = append(h.texts, text) }

func TestPodValidation(t *testing.T) {
	strategy := sandboxtemplate.NewStrategy(registrytest.NewScheme(), strict{})
	tests := map[string]struct {
		change         func(*v1alpha1.SandboxTemplate)
		asked, invalid bool
		// deleted templates only lose their finalizers.
		deleted bool
	}{
		"template": {
			change: func(s *v1alpha1.SandboxTemplate) {
				s.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}`)
			},
			asked: true,
		},
		"reference": {
			change: func(s *v1alpha1.SandboxTemplate) {
				s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "t"}
			},
			asked: true,
		},
		"invalid": {change: func(s *v1alpha1.SandboxTemplate) { s.Spec.Template.Raw = []byte("{}") }, invalid: true},
		"labels":  {change: func(s *v1alpha1.SandboxTemplate) { s.Labels = map[string]string{"a": "b"} }},
		"pause":   {change: func(s *v1alpha1.SandboxTemplate) { s.Spec.PauseStrategy = &v1alpha1.PauseStrategy{} }},
		"deleted": {change: func(s *v1alpha1.SandboxTemplate) { s.Spec.Template = nil }, deleted: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old := registrytest.NewSandboxTemplate("a")
			old.ResourceVersion = "7"
			if tc.deleted {
				old.DeletionTimestamp = &metav1.Time{}
			}
			template := old.DeepCopy()
			tc.change(template)
			var h heard
			errs := strategy.ValidateUpdate(warning.WithWarningRecorder(t.Context(), &h), template, old)
			if (len(errs) > 0) != (tc.asked || tc.invalid) || (len(h.texts) > 0) != tc.asked {
				t.Errorf("errors %v, warnings %q", errs, h.texts)
			}
			if got := strategy.WarningsOnUpdate(t.Context(), template, old); !tc.invalid && (len(got) > 0) != tc.asked {
				t.Errorf("warnings for its users %q", got)
			}
		})
	}
	if errs := strategy.Validate(t.Context(), registrytest.NewSandboxTemplate("a")); len(errs) != 1 {
		t.Errorf("a new template: %v", errs)
	}
	alone := sandboxtemplate.NewStrategy(registrytest.NewScheme(), nil)
	if errs := alone.Validate(t.Context(), registrytest.NewSandboxTemplate("a")); len(errs) > 0 {
		t.Errorf("without a validator of pods: %v", errs)
	}
}
