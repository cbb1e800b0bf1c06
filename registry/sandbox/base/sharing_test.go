// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
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
