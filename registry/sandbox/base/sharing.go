// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Server-side apply compares the text of a manifest with the object as it is shown. The two
// differ where a value has several texts (60s and 1m0s, 1000m and 1), where it is not shown
// (false, "", an empty list), and where it is a default. Each such field looks like a change:
// another manager who has applied the same is in conflict, or loses the field to a forced
// apply, which is a write.
//
// What changes is therefore decided by the objects, before and after: a field with the same
// stored value was not changed, and whoever owned it still does.

// SharingEqual returns the update of an apply in which managers share the fields that it
// leaves at the same value. An update that is no apply is returned as it is: only an apply may
// create.
func SharingEqual(info rest.UpdatedObjectInfo, isApply bool, options *metav1.UpdateOptions) rest.UpdatedObjectInfo {
	if !isApply {
		return info
	}
	return &sharingEqual{info, options.FieldManager}
}

type sharingEqual struct {
	rest.UpdatedObjectInfo
	// manager is who applies.
	manager string
}

// UpdatedObject implements rest.UpdatedObjectInfo.
func (u *sharingEqual) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	before, ok := old.(Object)
	if !ok || len(before.GetManagedFields()) == 0 {
		return u.UpdatedObjectInfo.UpdatedObject(ctx, old)
	}
	updated, err := u.UpdatedObjectInfo.UpdatedObject(ctx, old.DeepCopyObject())
	if apierrors.IsConflict(err) {
		updated, err = u.withoutFalseConflicts(ctx, before, err)
	}
	if err != nil {
		return nil, err
	}
	after, ok := updated.(Object)
	if !ok {
		return updated, nil
	}
	after = after.DeepCopyObject().(Object)
	return after, u.giveBack(ctx, before, after)
}

// withoutFalseConflicts applies again where the first try was in conflict: once as if there
// were no other managers, to see what is changed, and then with those conflicts alone that are
// about a change.
func (u *sharingEqual) withoutFalseConflicts(ctx context.Context, before Object, conflict error) (runtime.Object, error) {
	alone, err := u.disowned(ctx, before, func(owned *fieldpath.Set, _ *metav1.ManagedFieldsEntry) (*fieldpath.Set, error) { return owned, nil })
	if err != nil {
		return nil, err
	}
	tried, err := u.UpdatedObjectInfo.UpdatedObject(ctx, alone)
	if err != nil {
		return nil, conflict
	}
	contested, err := u.disowned(ctx, before, newComparison(before, tried).same)
	if err != nil {
		return nil, err
	}
	return u.UpdatedObjectInfo.UpdatedObject(ctx, contested)
}

// disowned returns an object of which other managers do not own some of their fields. Their
// entries stay: of an object without entries an apply takes all fields for owned.
func (u *sharingEqual) disowned(ctx context.Context, object Object, some func(*fieldpath.Set, *metav1.ManagedFieldsEntry) (*fieldpath.Set, error)) (Object, error) {
	object = object.DeepCopyObject().(Object)
	entries := object.GetManagedFields()
	for i := range entries {
		entry := &entries[i]
		if u.isOwn(ctx, entry) || entry.FieldsV1 == nil {
			continue
		}
		owned, err := decoded(entry)
		if err != nil {
			return nil, err
		}
		without, err := some(owned, entry)
		if err != nil {
			return nil, err
		}
		if entry.FieldsV1, err = encoded(owned.Difference(without)); err != nil {
			return nil, err
		}
	}
	object.SetManagedFields(entries)
	return object, nil
}

// isOwn reports whether an entry is of who applies.
func (u *sharingEqual) isOwn(ctx context.Context, e *metav1.ManagedFieldsEntry) bool {
	return sameManager(e, applier(ctx, u.manager))
}

// giveBack gives other managers the fields back that they have lost although their values are
// the same. Where nothing is left that differs, the times of the entries are those of before, so
// that nothing is written.
func (u *sharingEqual) giveBack(ctx context.Context, before, after Object) error {
	compared := newComparison(before, after)
	entries := after.GetManagedFields()
	for _, was := range before.GetManagedFields() {
		if was.FieldsV1 == nil || u.isOwn(ctx, &was) {
			continue
		}
		owned, err := decoded(&was)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return isEntryOf(&e, &was) })
		left := fieldpath.NewSet()
		if at >= 0 {
			if left, err = decoded(&entries[at]); err != nil {
				return err
			}
		}
		lost := owned.Difference(left)
		if lost.Empty() {
			continue
		}
		kept, err := compared.same(lost, &was)
		if err != nil {
			return err
		}
		if kept.Empty() {
			continue
		}
		if at < 0 {
			entries = append(entries, was)
			at = len(entries) - 1
		}
		if entries[at].FieldsV1, err = encoded(left.Union(kept)); err != nil {
			return err
		}
	}
	sortEntries(entries)
	after.SetManagedFields(entries)
	equal, err := isEqualButForTimes(before, after)
	if equal {
		after.SetManagedFields(before.GetManagedFields())
	}
	return err
}

func isEntryOf(a, b *metav1.ManagedFieldsEntry) bool {
	return sameManager(a, b) && a.APIVersion == b.APIVersion
}

// isEqualButForTimes reports whether two objects differ at most in the times of managers, and in
// empty values, which are not stored for every field. If an empty value is stored after all, the
// write happens, and only the time of its manager is that of before.
func isEqualButForTimes(before, after Object) (bool, error) {
	var stored [2]map[string]any
	for i, object := range []Object{before, after} {
		object = object.DeepCopyObject().(Object)
		entries := object.GetManagedFields()
		for j := range entries {
			entries[j].Time = nil
		}
		sortEntries(entries)
		object.SetManagedFields(entries)
		var err error
		if stored[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(object); err != nil {
			return false, fmt.Errorf("comparing objects: %w", err)
		}
		// Only the object counts here: a set of owned fields consists of empty values.
		for key, part := range stored[i] {
			if key != "metadata" {
				stored[i][key] = withoutEmpty(part)
			}
		}
	}
	return reflect.DeepEqual(stored[0], stored[1]), nil
}

// withoutEmpty returns a value without the fields that are empty; nil for one that is empty.
func withoutEmpty(value any) any {
	switch value := value.(type) {
	case string:
		if value == "" {
			return nil
		}
	case []any:
		if len(value) == 0 {
			return nil
		}
		for i := range value {
			value[i] = withoutEmpty(value[i])
		}
	case map[string]any:
		for key, field := range value {
			if value[key] = withoutEmpty(field); value[key] == nil {
				delete(value, key)
			}
		}
		if len(value) == 0 {
			return nil
		}
	}
	return value
}

// comparison compares fields of an object before and after an update.
type comparison struct {
	obj runtime.Object
	// values are the values before and after, which few updates need.
	values func() ([2]map[string]any, error)
}

func newComparison(before, after runtime.Object) *comparison {
	return &comparison{before, sync.OnceValues(func() ([2]map[string]any, error) {
		var values [2]map[string]any
		for i, object := range []runtime.Object{before, after} {
			var err error
			if values[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(object); err != nil {
				return values, fmt.Errorf("comparing fields: %w", err)
			}
		}
		return values, nil
	})}
}

// same returns those fields of a manager that have the same value before and after. A field
// that the stored version has no words for counts as changed.
func (c *comparison) same(fields *fieldpath.Set, entry *metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	values, err := c.values()
	if err != nil {
		return nil, err
	}
	from, err := schema.ParseGroupVersion(entry.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("reading what %s owns: %w", entry.Manager, err)
	}
	same := fieldpath.NewSet()
	was, is := itemIndex{}, itemIndex{}
	fields.Iterate(func(path fieldpath.Path) {
		stored := path
		if slices.Contains(v1alpha1.ServedVersions, from) {
			stored = translate(path, c.obj, from, v1alpha1.SchemeGroupVersion)
		}
		if stored != nil && reflect.DeepEqual(was.valueAt(values[0], stored), is.valueAt(values[1], stored)) {
			same.Insert(path.Copy())
		}
	})
	return same, nil
}
