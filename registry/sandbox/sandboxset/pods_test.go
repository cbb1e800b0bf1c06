// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
)

// strict finds something wrong with every set.
type strict struct{}

func (strict) ValidateSet(_ context.Context, set *v1alpha1.SandboxSet) (field.ErrorList, []string) {
	return field.ErrorList{field.Invalid(field.NewPath("spec"), set.Name, "bad")}, []string{"checked"}
}

// heard keeps warnings.
type heard struct{ texts []string }

func (h *heard) AddWarning(_, text string) { h.texts = append(h.texts, text) }

func TestPodValidation(t *testing.T) {
	strategy := sandboxset.NewStrategy(registrytest.NewScheme(), strict{})
	refers := func(s *v1alpha1.SandboxSet) {
		s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "t"}
	}
	tests := map[string]struct {
		old, change func(*v1alpha1.SandboxSet)
		// asked: the validator of pods is. What is invalid in itself is not
		// worth its time.
		asked   bool
		invalid bool
	}{
		"template": {
			change: func(s *v1alpha1.SandboxSet) {
				s.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}`)
			},
			asked: true,
		},
		"reference": {change: refers, asked: true},
		"patch": {
			old: refers, change: func(s *v1alpha1.SandboxSet) { s.Spec.Patch = &runtime.RawExtension{Raw: []byte("{}")} }, asked: true,
		},
		"volumes": {
			old: refers,
			change: func(s *v1alpha1.SandboxSet) {
				s.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(`{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)}}
			},
			asked: true,
		},
		"template, invalid":             {change: func(s *v1alpha1.SandboxSet) { s.Spec.Template.Raw = []byte("{}") }, invalid: true},
		"replicas":                      {change: func(s *v1alpha1.SandboxSet) { *s.Spec.Replicas++ }},
		"labels":                        {change: func(s *v1alpha1.SandboxSet) { s.Labels = map[string]string{"a": "b"} }},
		"template, in another notation": {change: func(s *v1alpha1.SandboxSet) { s.Spec.Template.Raw = append(s.Spec.Template.Raw, ' ') }},
		"template of what is deleted": {
			old: func(s *v1alpha1.SandboxSet) { s.DeletionTimestamp = &metav1.Time{} }, change: refers,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old := registrytest.NewSandboxSet("a")
			old.ResourceVersion = "7"
			if tc.old != nil {
				tc.old(old)
			}
			set := old.DeepCopy()
			tc.change(set)
			var h heard
			errs := strategy.ValidateUpdate(warning.WithWarningRecorder(t.Context(), &h), set, old)
			if (len(errs) > 0) != (tc.asked || tc.invalid) || (len(h.texts) > 0) != tc.asked {
				t.Errorf("errors %v, warnings %q", errs, h.texts)
			}
		})
	}
	var h heard
	if errs := strategy.Validate(warning.WithWarningRecorder(t.Context(), &h), registrytest.NewSandboxSet("a")); len(errs) != 1 || len(h.texts) != 1 {
		t.Errorf("a new set: errors %v, warnings %q", errs, h.texts)
	}
	// A new status is no new set.
	status := registrytest.NewSandboxSet("a")
	status.ResourceVersion = "7"
	if errs := sandboxset.NewStatusStrategy(strategy).ValidateUpdate(t.Context(), status.DeepCopy(), status); len(errs) > 0 {
		t.Errorf("a new status: %v", errs)
	}
}
