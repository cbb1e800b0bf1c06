// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// TrackFieldManagers returns an update that records which manager owns which field, also if
// managers write in different versions. strategy is that of the store. isApply is set
// for a server-side apply, which is the only update that may create: it is the forceAllowCreate
// of the REST interface.
func TrackFieldManagers(strategy rest.RESTUpdateStrategy, info rest.UpdatedObjectInfo, isApply bool, options *metav1.UpdateOptions) rest.UpdatedObjectInfo {
	if !isApply {
		return &checkedUpdate{KeepStoredTemplates(info)}
	}
	info = &inOneVersion{info, options.FieldManager}
	if forms, ok := strategy.(objectViews); ok {
		info = &sharingApply{info, options.FieldManager, forms}
	}
	return &checkedUpdate{&boundedManagers{info}}
}

// MaxManagedFields bounds the managedFields of objects that are applied, and of those in the body of a
// request, in bytes. The time that an apply takes grows with them: 1.3 MB take a second.
const MaxManagedFields = 256 << 10

// ManagedFieldsSize returns how many bytes the managedFields of an object have.
func ManagedFieldsSize(object metav1.Object) int {
	size, entries := 0, object.GetManagedFields()
	for i := range entries {
		size += entries[i].Size()
	}
	return size
}

// boundedManagers is an apply that is refused if the object has, or would have, too large
// managedFields.
type boundedManagers struct{ rest.UpdatedObjectInfo }

// UpdatedObject implements rest.UpdatedObjectInfo.
func (b *boundedManagers) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	if err := checkManagedFields(old); err != nil {
		return nil, err
	}
	updated, err := b.UpdatedObjectInfo.UpdatedObject(ctx, old)
	if err != nil {
		return nil, err
	}
	return updated, checkManagedFields(updated)
}

// checkManagedFields returns an Invalid if the managedFields of an object are too large.
func checkManagedFields(obj runtime.Object) error {
	object, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	size := ManagedFieldsSize(object)
	if size <= MaxManagedFields {
		return nil
	}
	path := field.NewPath("metadata", "managedFields")
	return apierrors.NewInvalid(obj.GetObjectKind().GroupVersionKind().GroupKind(), object.GetName(), field.ErrorList{field.Forbidden(path,
		fmt.Sprintf("%d managers own fields of %d bytes, more than %d: apply fewer fields, or clear managedFields by a merge patch to [{}]", len(object.GetManagedFields()), size, MaxManagedFields))})
}

// applier returns an entry that names the manager whose apply a request is.
func applier(ctx context.Context, manager string) *metav1.ManagedFieldsEntry {
	return &metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Subresource: subresourceOf(ctx)}
}

// sameManager reports whether two entries are of the same manager, in any version.
func sameManager(a, b *metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource
}

// sortEntries sorts entries as the field manager of the generic server writes them, so that a
// write that changes nothing does not change their order.
func sortEntries(entries []metav1.ManagedFieldsEntry) {
	slices.SortStableFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(seconds(a.Time), seconds(b.Time)),
			cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Subresource, b.Subresource))
	})
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// DisownUpdates takes a field, with all below it, from the managers that own it by an update in
// one of the versions of a group.
func DisownUpdates(obj metav1.Object, group string, path fieldpath.Path) error {
	var entries []metav1.ManagedFieldsEntry
	for _, entry := range obj.GetManagedFields() {
		version, err := schema.ParseGroupVersion(entry.APIVersion)
		if err == nil && version.Group == group && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.FieldsV1 != nil {
			owned, err := decoded(&entry)
			if err != nil {
				return err
			}
			left := owned.RecursiveDifference(fieldpath.NewSet(path))
			if left.Empty() {
				continue
			}
			if entry.FieldsV1, err = encoded(left); err != nil {
				return err
			}
		}
		entries = append(entries, entry)
	}
	obj.SetManagedFields(entries)
	return nil
}

// decoded returns the fields of an entry that has some.
func decoded(entry *metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	owned := &fieldpath.Set{}
	if err := owned.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return nil, fmt.Errorf("reading what %s owns: %w", entry.Manager, err)
	}
	return owned, nil
}

func encoded(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	raw, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("writing what a manager owns: %w", err)
	}
	return metav1.NewFieldsV1(string(raw)), nil
}
