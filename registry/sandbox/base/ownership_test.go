// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	isApplied = metav1.ManagedFieldsOperationApply
	isUpdated = metav1.ManagedFieldsOperationUpdate
)

var (
	ours   = v1alpha1.SchemeGroupVersion
	theirs = schema.GroupVersion{Group: v1alpha1.ExtensionsGroup, Version: "v1beta1"}
)

func entryOf(manager string, operation metav1.ManagedFieldsOperationType, version schema.GroupVersion, fields string) metav1.ManagedFieldsEntry {
	at := metav1.NewTime(time.Unix(1700000000, 0))
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: version.String(), Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
}

func requestIn(version schema.GroupVersion) context.Context {
	return genericapirequest.WithRequestInfo(context.Background(), &genericapirequest.RequestInfo{APIGroup: version.Group, APIVersion: version.Version})
}

// updating returns an update that makes other managed fields of those that it sees.
func updating(change func(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry) rest.UpdatedObjectInfo {
	return rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		obj := old.DeepCopyObject().(*v1alpha1.SandboxSet)
		obj.ManagedFields = change(obj.ManagedFields)
		return obj, nil
	})
}

// applied returns what an apply of a manager leaves of the managed fields.
func applied(t *testing.T, manager string, stored []metav1.ManagedFieldsEntry,
	change func([]metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	t.Helper()
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: stored}}
	obj, err := (&inOneVersion{updating(change), manager}).UpdatedObject(requestIn(theirs), set)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*v1alpha1.SandboxSet).ManagedFields
}

// What an apply leaves alone is as it was, also what has no words in its version, and in the same
// order. It is never shown an object that seems to have no managers.
func TestApplyInOneVersion(t *testing.T) {
	stored := []metav1.ManagedFieldsEntry{
		entryOf("aside", isApplied, ours, `{"f:spec":{"f:patch":{}}}`),
		entryOf("both", isApplied, ours, `{"f:spec":{"f:patch":{},"f:templateRef":{"f:name":{}}}}`),
		entryOf("one", isUpdated, ours, `{"f:spec":{"f:replicas":{}}}`),
		entryOf("one", isUpdated, theirs, `{"f:metadata":{"f:labels":{"f:a":{}}}}`),
	}
	for n := range stored {
		only := stored[n : n+1]
		for _, before := range [][]metav1.ManagedFieldsEntry{only, stored} {
			after := applied(t, "applier", before, func(shown []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
				if len(shown) != len(before) {
					t.Errorf("shown are %+v", shown)
				}
				seen := map[string]bool{}
				for _, entry := range shown {
					if entry.APIVersion != theirs.String() || seen[string(entry.Operation)+entry.Manager] {
						t.Errorf("shown is %+v, of %+v", entry, shown)
					}
					seen[string(entry.Operation)+entry.Manager] = true
				}
				// The field manager drops entries without fields.
				return slices.DeleteFunc(shown, func(e metav1.ManagedFieldsEntry) bool { return e.FieldsV1.GetRawString() == "{}" })
			})
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("(-before +after)\n%s", diff)
			}
		}
	}
}

// Who has applied anew owns what it has applied, and keeps what it could not say.
func TestAppliedAnew(t *testing.T) {
	later := metav1.NewTime(time.Unix(1800000000, 0))
	apply := func(before metav1.ManagedFieldsEntry, fields string, at *metav1.Time) []metav1.ManagedFieldsEntry {
		return applied(t, "m", []metav1.ManagedFieldsEntry{before}, func([]metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
			entry := entryOf("m", isApplied, theirs, fields)
			entry.Time = at
			return []metav1.ManagedFieldsEntry{entry}
		})
	}
	said := entryOf("m", isApplied, ours, `{"f:spec":{"f:templateRef":{"f:name":{}}}}`)
	more := entryOf("m", isApplied, ours, `{"f:spec":{"f:patch":{},"f:templateRef":{"f:name":{}}}}`)
	const same, other = `{"f:spec":{"f:sandboxTemplateRef":{"f:name":{}}}}`, `{"f:spec":{"f:replicas":{}}}`
	at := func(entry metav1.ManagedFieldsEntry, time *metav1.Time) metav1.ManagedFieldsEntry {
		entry.Time = time
		return entry
	}
	for name, tc := range map[string]struct {
		before metav1.ManagedFieldsEntry
		fields string
		at     *metav1.Time
		want   metav1.ManagedFieldsEntry
	}{
		"the same, which changes nothing":       {said, same, said.Time, said},
		"the same, with another value":          {said, same, &later, at(entryOf("m", isApplied, theirs, same), &later)},
		"other fields":                          {said, other, said.Time, entryOf("m", isApplied, theirs, other)},
		"the same, and not what has no words":   {more, same, more.Time, more},
		"other fields beside what has no words": {more, other, &later, at(entryOf("m", isApplied, ours, `{"f:spec":{"f:patch":{},"f:replicas":{}}}`), &later)},
		"what the old version has no words for": {more, `{"f:spec":{"f:new":{}}}`, &later, at(entryOf("m", isApplied, theirs, `{"f:spec":{"f:new":{}}}`), &later)},
	} {
		if diff := cmp.Diff([]metav1.ManagedFieldsEntry{tc.want}, apply(tc.before, tc.fields, tc.at)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// All other writes see managed fields as they are stored, and can take them away.
func TestOtherWritesSeeAllVersions(t *testing.T) {
	stored := []metav1.ManagedFieldsEntry{entryOf("m", isApplied, ours, `{"f:spec":{"f:patch":{}}}`)}
	change := func(shown []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
		if diff := cmp.Diff(stored, shown); diff != "" {
			t.Errorf("(-stored +shown)\n%s", diff)
		}
		return nil
	}
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: stored}}
	obj, err := TrackFieldManagers(nil, updating(change), false, &metav1.UpdateOptions{FieldManager: "m"}).UpdatedObject(requestIn(theirs), set)
	if err != nil {
		t.Fatal(err)
	}
	if after := obj.(*v1alpha1.SandboxSet).ManagedFields; len(after) > 0 {
		t.Errorf("left are %+v", after)
	}
}

// The order of entries is that of the generic server.
func TestOrderOfEntries(t *testing.T) {
	var entries []metav1.ManagedFieldsEntry
	versions := managedfields.ResourcePathMappings{}
	for _, version := range []schema.GroupVersion{theirs, ours} {
		versions[version.String()] = nil
		for _, manager := range []string{"b", "a"} {
			for _, subresource := range []string{"status", ""} {
				for n := range 3 {
					entry := entryOf(manager, isUpdated, version, `{"f:metadata":{"f:labels":{"f:a":{}}}}`)
					entry.Subresource = subresource
					if n > 0 {
						entry.Manager += "-old"
						entry.Time = nil
					}
					if n > 1 {
						entry.Operation, entry.Manager = isApplied, manager+version.Group
					}
					entries = append(entries, entry)
				}
			}
		}
	}
	want, err := managedfields.NewScaleHandler(entries, ours, versions).ToParent(nil)
	if err != nil || len(want) != len(entries) {
		t.Fatalf("%d of %d entries, %v", len(want), len(entries), err)
	}
	sortEntries(entries)
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A scale that changes nothing leaves all owners alone, and one that does takes the field.
func TestScaleOwnership(t *testing.T) {
	field := ScaledField{ours: fieldpath.MakePathOrDie("spec", "paused"), theirs: fieldpath.MakePathOrDie("spec", "replicas")}
	stored := []metav1.ManagedFieldsEntry{
		entryOf("applier", isApplied, ours, `{"f:spec":{"f:paused":{},"f:patch":{}}}`),
		entryOf("one", isUpdated, ours, `{"f:spec":{"f:paused":{}}}`),
		entryOf("one", isUpdated, theirs, `{"f:spec":{"f:a":{},"f:replicas":{}}}`),
		entryOf("other", isUpdated, ours, `{"f:spec":{"f:patch":{}}}`),
	}
	sortEntries(stored)
	for _, version := range []schema.GroupVersion{ours, theirs} {
		ownership := NewScaleOwnership(requestIn(version), stored, field)
		shown, err := ownership.OfScale()
		if err != nil || len(shown) != 3 {
			t.Fatalf("%+v, %v", shown, err)
		}
		same, err := ownership.OfObject(shown)
		if diff := cmp.Diff(stored, same); err != nil || diff != "" {
			t.Errorf("nothing changes: %v (-before +after)\n%s", err, diff)
		}
		taken := entryOf("scaler", isUpdated, schema.GroupVersion{Group: "autoscaling", Version: "v1"}, `{"f:spec":{"f:replicas":{}}}`)
		taken.Subresource = "scale"
		got, err := ownership.OfObject([]metav1.ManagedFieldsEntry{taken})
		scaler := entryOf("scaler", isUpdated, version, map[schema.GroupVersion]string{ours: `{"f:spec":{"f:paused":{}}}`, theirs: `{"f:spec":{"f:replicas":{}}}`}[version])
		scaler.Subresource = "scale"
		want := []metav1.ManagedFieldsEntry{
			entryOf("applier", isApplied, ours, `{"f:spec":{"f:patch":{}}}`),
			entryOf("one", isUpdated, theirs, `{"f:spec":{"f:a":{}}}`),
			entryOf("other", isUpdated, ours, `{"f:spec":{"f:patch":{}}}`), scaler,
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("scaled in %s: %v (-want +got)\n%s", version, err, diff)
		}
	}
}
