// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func TestBase(t *testing.T) {
	base := NewStrategy(runtime.NewScheme())
	if !base.NamespaceScoped() || base.AllowCreateOnUpdate(t.Context()) || base.AllowUnconditionalUpdate(t.Context()) {
		t.Error("the group is namespaced, PUT does not create, and needs a resourceVersion")
	}
	if name := base.GenerateName("a-"); len(name) <= len("a-") {
		t.Errorf("generated name is %q", name)
	}
}

func TestKeepMetadata(t *testing.T) {
	stored := &metav1.ObjectMeta{
		Name: "a", UID: types.UID("1"), ResourceVersion: "5", Generation: 3,
		Labels: map[string]string{"a": "old"}, Finalizers: []string{"hold"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "old"}},
	}
	updated := &metav1.ObjectMeta{
		Name: "a", ResourceVersion: "5", Generation: 9,
		Labels: map[string]string{"a": "new"}, Annotations: map[string]string{"b": "new"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "new"}},
	}
	want := stored.DeepCopy()
	want.ManagedFields = updated.ManagedFields

	KeepMetadata(updated, stored)
	if diff := cmp.Diff(want, updated); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	updated.Labels["a"] = "changed"
	if stored.Labels["a"] != "old" {
		t.Error("the update shares a map with the stored object")
	}
}

func TestSpecChanged(t *testing.T) {
	canonicalize := func(spec *v1alpha1.SandboxSpec) { CanonicalizeTemplate(&spec.EmbeddedSandboxTemplate) }
	spec := func(template string) *v1alpha1.SandboxSpec {
		s := &v1alpha1.SandboxSpec{}
		s.Template = &runtime.RawExtension{Raw: []byte(template)}
		return s
	}
	tests := map[string]struct {
		updated, stored *v1alpha1.SandboxSpec
		want            bool
	}{
		"same":                         {spec(`{"a":1,"b":2}`), spec(`{"a":1,"b":2}`), false},
		"other value":                  {spec(`{"a":1}`), spec(`{"a":2}`), true},
		"stored by another, same JSON": {spec(`{"a":1,"b":2}`), spec(`{"b":2, "a":1}`), false},
		"stored by another, other":     {spec(`{"a":1,"b":2}`), spec(`{"b":3, "a":1}`), true},
		"empty and absent list": {
			&v1alpha1.SandboxSpec{Runtimes: []v1alpha1.RuntimeConfig{}}, &v1alpha1.SandboxSpec{}, false,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored := tc.stored.DeepCopy()
			if got := SpecChanged(tc.updated, tc.stored, canonicalize); got != tc.want {
				t.Errorf("got %v", got)
			}
			if diff := cmp.Diff(stored, tc.stored); diff != "" {
				t.Errorf("stored spec was changed (-before +after):\n%s", diff)
			}
		})
	}
}

// Quantities are equal by value, not by spelling.
func TestSpecChangedOfQuantities(t *testing.T) {
	spec := func(cpu string) *v1alpha1.SandboxClaimSpec {
		return &v1alpha1.SandboxClaimSpec{InplaceUpdate: &v1alpha1.SandboxClaimInplaceUpdateOptions{
			Resources: &v1alpha1.SandboxClaimInplaceUpdateResources{
				Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			},
		}}
	}
	if SpecChanged(spec("1"), spec("1000m"), func(*v1alpha1.SandboxClaimSpec) {}) {
		t.Error("1 and 1000m are the same")
	}
}

func TestWholeSeconds(t *testing.T) {
	for _, none := range []*metav1.Time{nil, {}, {Time: time.Time{}.Add(time.Millisecond)}} {
		if got := WholeSeconds(none); got != nil {
			t.Errorf("no time became %v", got)
		}
	}
	in := metav1.NewTime(now.Add(900 * time.Millisecond))
	if got := WholeSeconds(&in); !got.Time.Equal(now) {
		t.Errorf("got %v, want %v", got, now)
	}
	if in.Nanosecond() == 0 {
		t.Error("the argument was changed")
	}
}

func TestPastTimeWarning(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(d))) }
	tests := map[string]struct {
		at   *metav1.Time
		want []string
	}{
		"absent": {nil, nil},
		"ahead":  {at(time.Second), nil},
		"now":    {at(0), []string{"spec.t: 2026-09-01T12:00:00Z has passed already; so"}},
		"passed": {at(-time.Hour), []string{"spec.t: 2026-09-01T11:00:00Z has passed already; so"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, PastTimeWarning(field.NewPath("spec", "t"), tc.at, now, "so")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestResetFields(t *testing.T) {
	const version = fieldpath.APIVersion("agents.kruise.io/v1alpha1")
	main := ResetFields(fieldpath.MakePathOrDie("metadata", "annotations", "x"))[version]
	for _, path := range []fieldpath.Path{fieldpath.MakePathOrDie("status"), fieldpath.MakePathOrDie("metadata", "annotations", "x")} {
		if !main.Has(path) {
			t.Errorf("main resource does not reset %s", path)
		}
	}
	if main.Has(fieldpath.MakePathOrDie("spec")) {
		t.Error("main resource resets spec")
	}
	status := StatusStrategy[Object]{}.GetResetFields()[version]
	if !status.Has(fieldpath.MakePathOrDie("spec")) || !status.Has(fieldpath.MakePathOrDie("metadata")) || status.Has(fieldpath.MakePathOrDie("status")) {
		t.Errorf("status resets %s", status)
	}
}

func TestForbidVersion(t *testing.T) {
	if errs := ForbidResourceVersion(&metav1.ObjectMeta{Name: "a"}); len(errs) != 0 {
		t.Errorf("a new object is refused: %v", errs)
	}
	errs := ForbidResourceVersion(&metav1.ObjectMeta{Name: "a", ResourceVersion: "1"})
	if len(errs) != 1 || errs[0].Field != "metadata.resourceVersion" {
		t.Errorf("an object that was read is not refused: %v", errs)
	}
}
