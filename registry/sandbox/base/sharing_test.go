// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// defaultingViews store 1 replica for none, and know one version.
type defaultingViews struct{}

func (defaultingViews) PrepareForUpdate(_ context.Context, obj, _ runtime.Object) {
	if set := obj.(*v1alpha1.SandboxSet); set.Spec.Replicas == nil {
		set.Spec.Replicas = new(int32(1))
	}
}

func (defaultingViews) InVersion(obj runtime.Object, version schema.GroupVersion) (runtime.Object, error) {
	if version != ours {
		return nil, runtime.NewNotRegisteredErrForTarget("test", nil, version)
	}
	return obj, nil
}

// Other managers lose by an apply only the fields of which another value is stored, and an apply
// that stores nothing else does not change its own entry.
func TestEqualValuesKeepOwners(t *testing.T) {
	const fields = `{"f:spec":{"f:replicas":{}}}`
	later := metav1.NewTime(time.Unix(1800000000, 0))
	again := entryOf("applier", isApplied, ours, fields)
	again.Time = &later
	applier, other := entryOf("applier", isApplied, ours, fields), entryOf("other", isApplied, ours, fields)
	unknown := entryOf("unknown", isApplied, schema.GroupVersion{Group: "example.com", Version: "v1"}, fields)
	for name, tc := range map[string]struct {
		replicas *int32
		want     []metav1.ManagedFieldsEntry
	}{
		"the same value":    {new(int32(1)), []metav1.ManagedFieldsEntry{applier, other}},
		"the default":       {nil, []metav1.ManagedFieldsEntry{applier, other}},
		"a different value": {new(int32(2)), []metav1.ManagedFieldsEntry{again}},
	} {
		set := &v1alpha1.SandboxSet{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{applier, other, unknown}},
			Spec:       v1alpha1.SandboxSetSpec{Replicas: new(int32(1))},
		}
		if len(tc.want) > 1 { // an entry of an unknown version is dropped, which is a write
			set.ManagedFields = set.ManagedFields[:2]
		}
		// The field manager takes the text for a change, and the field from all others.
		forced := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			obj := old.DeepCopyObject().(*v1alpha1.SandboxSet)
			obj.Spec.Replicas, obj.ManagedFields = tc.replicas, []metav1.ManagedFieldsEntry{again}
			return obj, nil
		})
		obj, err := (&sharingApply{forced, "applier", defaultingViews{}}).UpdatedObject(requestIn(ours), set)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, obj.(*v1alpha1.SandboxSet).ManagedFields); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// managedBy returns an object with a long list, a part of which this many managers own.
func managedBy(t *testing.T, managers int) *v1alpha1.SandboxSet {
	t.Helper()
	set := &v1alpha1.SandboxSet{Spec: v1alpha1.SandboxSetSpec{Replicas: new(int32(1))}}
	for i := range 2000 {
		set.Finalizers = append(set.Finalizers, fmt.Sprint("example.com/", i))
	}
	for i := range managers {
		set.ManagedFields = append(set.ManagedFields, entryOf(fmt.Sprint("manager-", i), isApplied, ours,
			`{"f:metadata":{"f:finalizers":{".":{},"v:\"example.com/1\"":{}}},"f:spec":{".":{},"f:replicas":{}}}`))
	}
	return set
}

// An apply costs no more for each manager because lists are long: they are indexed and compared
// once for all managers of a version.
func TestApplyAllocationsPerManager(t *testing.T) {
	cost := func(managers int) float64 {
		set := managedBy(t, managers)
		// The apply changes a value and takes all fields from all other managers.
		forced := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			obj := old.DeepCopyObject().(*v1alpha1.SandboxSet)
			obj.Spec.Replicas, obj.ManagedFields = new(int32(2)), []metav1.ManagedFieldsEntry{entryOf("applier", isApplied, ours, `{"f:spec":{"f:replicas":{}}}`)}
			return obj, nil
		})
		return testing.AllocsPerRun(3, func() {
			if _, err := (&sharingApply{forced, "applier", defaultingViews{}}).UpdatedObject(requestIn(ours), set); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := cost(2), cost(42)
	if one := (many - few) / 40; one > few/4 {
		t.Errorf("each further manager costs %.0f allocations, where an apply with two costs %.0f", one, few)
	}
}

// Managed fields whose paths are much longer than their text cost no more than their text: a
// client writes a long name once and any number of fields below it.
func TestApplyAllocationsForLongPaths(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	fields := &strings.Builder{}
	for i := range 5000 {
		fmt.Fprintf(fields, `"f:%d":{},`, i)
	}
	for name, entry := range map[string]string{
		"field": fmt.Sprintf(`{"f:spec":{"f:%s":{%s".":{}}}}`, long, fields),
		"key":   fmt.Sprintf(`{"f:metadata":{"f:finalizers":{"k:{\"name\":\"%s\"}":{%s".":{}}}}}`, long, fields),
		"value": fmt.Sprintf(`{"f:metadata":{"f:finalizers":{"v:\"%s\"":{%s".":{}}}}}`, long, fields),
	} {
		set := managedBy(t, 0)
		compared := (&sharingApply{views: defaultingViews{}}).compare(set, set.DeepCopy())
		owned := entryOf("manager", isApplied, ours, entry)
		paths, err := decoded(&owned)
		if err != nil {
			t.Fatal(err)
		}
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		same, err := compared.same(t.Context(), paths, &owned)
		goruntime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; err != nil || !same.Empty() || allocated > 50<<20 {
			t.Errorf("%s: comparing managed fields of %d bytes allocates %d: %v, %v", name, len(entry), allocated, same, err)
		}
	}
}

// What is not known to be the same is a change: else an apply would take fields without a conflict.
func TestIsEqual(t *testing.T) {
	before, after := managedBy(t, 0), managedBy(t, 0)
	after.Finalizers = after.Finalizers[1:]
	compared, err := (&sharingApply{views: defaultingViews{}}).compare(before, after).in(ours.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		item string
		want bool
	}{
		{`v:"example.com/1"`, true},
		{`v:"example.com/0"`, false},
		{`v:"example.com/none"`, true},
		{`v:["example.com/1"]`, false}, // which is not looked for
	} {
		if got := compared.isEqual(pathOf(t, "f:metadata", "f:finalizers", tc.item)); got != tc.want {
			t.Errorf("%s is equal: %t, want %t", tc.item, got, tc.want)
		}
	}
}
