// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
)

func newStrategy() sandboxset.Strategy {
	return sandboxset.NewStrategy(registrytest.NewScheme(), nil)
}

func TestPrepareForCreate(t *testing.T) {
	obj := registrytest.NewSandboxSet("a")
	obj.Generation = 7
	obj.Status = v1alpha1.SandboxSetStatus{AvailableReplicas: 100}
	obj.Spec.Template.Raw = []byte(`{"spec": {"containers": [{"name": "main", "image": "busybox:1"}]}}`)
	obj.Spec.Patch = &runtime.RawExtension{Raw: []byte(`{"spec": {"b": 1, "a": 2}}`)}

	newStrategy().PrepareForCreate(t.Context(), obj)

	want := registrytest.NewSandboxSet("a")
	want.Generation = 1
	want.Spec.Patch = &runtime.RawExtension{Raw: []byte(`{"spec":{"a":2,"b":1}}`)}
	if diff := cmp.Diff(want, obj); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPrepareForUpdate(t *testing.T) {
	tests := map[string]struct {
		change         func(*v1alpha1.SandboxSet)
		wantGeneration int64
	}{
		"nothing":     {func(*v1alpha1.SandboxSet) {}, 3},
		"annotations": {func(s *v1alpha1.SandboxSet) { s.Annotations = map[string]string{"a": "b"} }, 3},
		"status":      {func(s *v1alpha1.SandboxSet) { s.Status.AvailableReplicas = 100 }, 3},
		"template written otherwise": {func(s *v1alpha1.SandboxSet) {
			s.Spec.Template.Raw = []byte("{\"spec\":\n{\"containers\":[{\"name\":\"main\", \"image\":\"busybox:1\"}]}}")
		}, 3},
		"template": {func(s *v1alpha1.SandboxSet) { s.Spec.Template.Raw = []byte(`{"spec":{}}`) }, 4},
		"replicas": {func(s *v1alpha1.SandboxSet) { s.Spec.Replicas = ptr.To[int32](0) }, 4},
		"update strategy": {func(s *v1alpha1.SandboxSet) {
			s.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(1))
		}, 4},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored := registrytest.NewSandboxSet("a")
			stored.Generation = 3
			stored.Status.AvailableReplicas = 1
			before := stored.DeepCopy()
			updated := stored.DeepCopy()
			tc.change(updated)

			newStrategy().PrepareForUpdate(t.Context(), updated, stored)

			if updated.Generation != tc.wantGeneration {
				t.Errorf("generation %d, want %d", updated.Generation, tc.wantGeneration)
			}
			if updated.Status.AvailableReplicas != 1 {
				t.Errorf("status was changed to %d available", updated.Status.AvailableReplicas)
			}
			if diff := cmp.Diff(before, stored); diff != "" {
				t.Errorf("stored object was changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestStatusPrepareForUpdate(t *testing.T) {
	stored := registrytest.NewSandboxSet("a")
	stored.Generation = 3
	updated := stored.DeepCopy()
	updated.Spec.Replicas = ptr.To[int32](50)
	updated.OwnerReferences = []metav1.OwnerReference{{Name: "b"}}
	updated.Status.Replicas = 2

	sandboxset.NewStatusStrategy(newStrategy()).PrepareForUpdate(t.Context(), updated, stored)

	want := stored.DeepCopy()
	want.Status.Replicas = 2
	if diff := cmp.Diff(want, updated); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each write of the spec warns of what a pause does not keep.
func TestWarnings(t *testing.T) {
	set := registrytest.NewSandboxSet("a")
	set.Spec.PersistentContents = []string{"ip"}
	s := newStrategy()
	for how, got := range map[string][]string{
		"create": s.WarningsOnCreate(t.Context(), set),
		"update": s.WarningsOnUpdate(t.Context(), set, set.DeepCopy()),
	} {
		if len(got) != 1 {
			t.Errorf("%s warns %q", how, got)
		}
	}
	if got := sandboxset.NewStatusStrategy(s).WarningsOnUpdate(t.Context(), set, set.DeepCopy()); len(got) > 0 {
		t.Errorf("a status warns %q", got)
	}
}

func TestForegroundDeletion(t *testing.T) {
	s := newStrategy()
	for policy, want := range map[metav1.DeletionPropagation][]string{
		metav1.DeletePropagationForeground: {"other", v1alpha1.FinalizerPool},
		metav1.DeletePropagationBackground: {"other"},
		metav1.DeletePropagationOrphan:     {"other"},
		"":                                 {"other"},
	} {
		set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"other"}}}
		options := &metav1.DeleteOptions{}
		if policy != "" {
			options.PropagationPolicy = &policy
		}
		for range 2 { // the storage asks twice
			if s.CheckGracefulDelete(t.Context(), set, options) {
				t.Errorf("%s: there is grace", policy)
			}
		}
		if !slices.Equal(set.Finalizers, want) {
			t.Errorf("%s: finalizers %v, want %v", policy, set.Finalizers, want)
		}
	}
}
