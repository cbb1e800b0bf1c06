// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxtemplate"
)

func newStrategy() sandboxtemplate.Strategy {
	return sandboxtemplate.NewStrategy(registrytest.NewScheme(), nil)
}

func TestPrepareForCreate(t *testing.T) {
	obj := registrytest.NewSandboxTemplate("a")
	obj.Generation = 7
	obj.Spec.Template.Raw = []byte(`{"spec": {"containers": [{"name": "main", "image": "busybox:1"}]}}`)

	newStrategy().PrepareForCreate(t.Context(), obj)

	want := registrytest.NewSandboxTemplate("a")
	want.Generation = 1
	if diff := cmp.Diff(want, obj); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestValidateUpdateOfRevision(t *testing.T) {
	owned := func(kind string) *v1alpha1.SandboxTemplate {
		stored := registrytest.NewSandboxTemplate("a")
		stored.ResourceVersion = "7"
		stored.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: "x", UID: "1", Controller: new(true),
		}}
		return stored
	}
	template := func(s *v1alpha1.SandboxTemplate) {
		s.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}`)
	}
	const refused = "spec: Forbidden: belongs to SandboxSet x: change the set or the template that it refers to"
	tests := map[string]struct {
		kind   string
		change func(*v1alpha1.SandboxTemplate)
		want   string
	}{
		"template":       {"SandboxSet", template, refused},
		"pause":          {"SandboxSet", func(s *v1alpha1.SandboxTemplate) { s.Spec.PauseStrategy = &v1alpha1.PauseStrategy{} }, refused},
		"both":           {"SandboxSet", func(s *v1alpha1.SandboxTemplate) { template(s); s.OwnerReferences = nil }, refused},
		"labels":         {"SandboxSet", func(s *v1alpha1.SandboxTemplate) { s.Labels = map[string]string{"a": "b"} }, ""},
		"owner":          {"SandboxSet", func(s *v1alpha1.SandboxTemplate) { s.OwnerReferences = nil }, ""},
		"of another one": {"Deployment", template, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored := owned(tc.kind)
			updated := stored.DeepCopy()
			tc.change(updated)
			got := ""
			if errs := newStrategy().ValidateUpdate(t.Context(), updated, stored); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPrepareForUpdate(t *testing.T) {
	tests := map[string]struct {
		change         func(*v1alpha1.SandboxTemplate)
		wantGeneration int64
	}{
		"nothing": {func(*v1alpha1.SandboxTemplate) {}, 3},
		"labels":  {func(s *v1alpha1.SandboxTemplate) { s.Labels = map[string]string{"a": "b"} }, 3},
		"template written otherwise": {func(s *v1alpha1.SandboxTemplate) {
			s.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"main","image":"busybox:1"}]}} `)
		}, 3},
		"template": {func(s *v1alpha1.SandboxTemplate) { s.Spec.Template.Raw = []byte(`{"spec":{}}`) }, 4},
		"service":  {func(s *v1alpha1.SandboxTemplate) { s.Spec.Service = new(true) }, 4},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored := registrytest.NewSandboxTemplate("a")
			stored.Generation = 3
			updated := stored.DeepCopy()
			tc.change(updated)

			newStrategy().PrepareForUpdate(t.Context(), updated, stored)

			if updated.Generation != tc.wantGeneration {
				t.Errorf("generation %d, want %d", updated.Generation, tc.wantGeneration)
			}
		})
	}
}
