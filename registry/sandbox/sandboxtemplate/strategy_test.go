// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
