// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Server-side apply compares the text of a manifest with the object as the server shows it. The
// two differ where a value can be written in several ways (60s and 1m0s, 1000m and 1), where an
// empty value is not shown or has a default, and where the server does not take a value from
// clients. Each such field looks like a change: another manager who has applied the same
// manifest is in conflict, or loses the field to a forced apply, and that is a write.
//
// Here the objects decide what an apply changes: the stored object, and the one that would be
// stored, both as the version of each manager shows them. A field that has the same value in
// both keeps its owners.

// objectViews returns the objects that an apply compares.
type objectViews interface {
	// PrepareForUpdate changes an updated object into what is stored.
	PrepareForUpdate(ctx context.Context, obj, old runtime.Object)
	// InVersion converts obj to version. It returns the errors of runtime.Scheme.ConvertToVersion.
	InVersion(obj runtime.Object, version schema.GroupVersion) (runtime.Object, error)
}

// ShareScale returns the update of a scale in which managers share the field if an apply does
// not change it.
func ShareScale(info rest.UpdatedObjectInfo, isApply bool, options *metav1.UpdateOptions) rest.UpdatedObjectInfo {
	if !isApply {
		return info
	}
	return &sharingApply{info, options.FieldManager, scaleViews{}}
}

// scaleViews are those of a scale, which has one form.
type scaleViews struct{}

// PrepareForUpdate implements objectViews.
func (scaleViews) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}

// InVersion implements objectViews.
func (scaleViews) InVersion(obj runtime.Object, _ schema.GroupVersion) (runtime.Object, error) {
	return obj, nil
}

// sharingApply is an apply in which managers share the fields that it does not change.
type sharingApply struct {
	rest.UpdatedObjectInfo
	// manager is the manager that applies.
	manager string
	views   objectViews
}

// UpdatedObject implements rest.UpdatedObjectInfo.
func (u *sharingApply) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
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
	return after, u.returnFields(ctx, before, after)
}

// withoutFalseConflicts applies again after a conflict. The first time no other manager owns
// anything, which shows what the apply changes. The second time the others own only what it
// changes, so that each conflict is about a change.
func (u *sharingApply) withoutFalseConflicts(ctx context.Context, before Object, conflict error) (runtime.Object, error) {
	alone, err := u.disowned(ctx, before, func(_ context.Context, owned *fieldpath.Set, _ *metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
		return owned, nil
	})
	if err != nil {
		return nil, err
	}
	tried, err := u.UpdatedObjectInfo.UpdatedObject(ctx, alone)
	if err != nil {
		return nil, conflict
	}
	contested, err := u.disowned(ctx, before, u.compare(before, u.prepared(ctx, tried, before)).same)
	if err != nil {
		return nil, err
	}
	return u.UpdatedObjectInfo.UpdatedObject(ctx, contested)
}

// prepared returns what is stored of an updated object, which is of the same type.
func (u *sharingApply) prepared(ctx context.Context, updated, old runtime.Object) runtime.Object {
	updated = updated.DeepCopyObject()
	u.views.PrepareForUpdate(ctx, updated, old.DeepCopyObject())
	return updated
}

// disowned returns an object of which other managers do not own the fields that toRemove returns. Their
// entries remain: if an object has no entries, an apply adds a manager that owns all fields.
func (u *sharingApply) disowned(ctx context.Context, object Object, toRemove func(context.Context, *fieldpath.Set, *metav1.ManagedFieldsEntry) (*fieldpath.Set, error)) (Object, error) {
	object = object.DeepCopyObject().(Object)
	entries := object.GetManagedFields()
	for i := range entries {
		entry := &entries[i]
		if u.isOwn(ctx, entry) || entry.FieldsV1 == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		owned, err := decoded(entry)
		if err != nil {
			return nil, err
		}
		removed, err := toRemove(ctx, owned, entry)
		if err != nil {
			return nil, err
		}
		if entry.FieldsV1, err = encoded(owned.Difference(removed)); err != nil {
			return nil, err
		}
	}
	object.SetManagedFields(entries)
	return object, nil
}

// isOwn reports whether an entry is of the manager that applies.
func (u *sharingApply) isOwn(ctx context.Context, e *metav1.ManagedFieldsEntry) bool {
	return sameManager(e, applier(ctx, u.manager))
}

// returnFields returns to other managers the fields that they lost although the values are the
// same. If then only times of managers differ, it restores these, so that nothing is written.
func (u *sharingApply) returnFields(ctx context.Context, before, after Object) error {
	stored := u.prepared(ctx, after, before).(Object)
	compared := u.compare(before, stored)
	entries := after.GetManagedFields()
	for _, was := range before.GetManagedFields() {
		if was.FieldsV1 == nil || u.isOwn(ctx, &was) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
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
		kept, err := compared.same(ctx, lost, &was)
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
	stored.SetManagedFields(entries)
	equal, err := isEqualButForTimes(before, stored)
	if equal {
		after.SetManagedFields(before.GetManagedFields())
	}
	return err
}

func isEntryOf(a, b *metav1.ManagedFieldsEntry) bool {
	return sameManager(a, b) && a.APIVersion == b.APIVersion
}

// isEqualButForTimes reports whether two objects differ at most in the times of managers.
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
		// Not all objects in memory have these.
		delete(stored[i], "apiVersion")
		delete(stored[i], "kind")
	}
	return reflect.DeepEqual(stored[0], stored[1]), nil
}

// comparison compares fields of an object before and after an update.
type comparison struct {
	views   objectViews
	objects [2]runtime.Object
	// versions are what is known of the versions of managers. All managers of a version share it:
	// to index lists and compare fields for each would cost the product of their numbers.
	versions map[string]*comparedVersion
}

// comparedVersion is an object before and after an update, as a version shows it.
type comparedVersion struct {
	fields [2]map[string]any
	items  [2]itemIndex
	// equal are the objects and lists that were compared.
	equal map[[2]uintptr]bool
}

func (u *sharingApply) compare(before, after runtime.Object) *comparison {
	return &comparison{u.views, [2]runtime.Object{before, after}, map[string]*comparedVersion{}}
}

// in returns both objects as a version shows them, or nil if there is no such version of them.
func (c *comparison) in(apiVersion string) (*comparedVersion, error) {
	if compared, ok := c.versions[apiVersion]; ok {
		return compared, nil
	}
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, nil //nolint:nilerr // clients can write any text
	}
	compared := &comparedVersion{items: [2]itemIndex{{}, {}}, equal: map[[2]uintptr]bool{}}
	for i, object := range c.objects {
		shown, err := c.views.InVersion(object, version)
		if runtime.IsNotRegisteredError(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("comparing fields in version %s: %w", version, err)
		}
		if compared.fields[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(shown); err != nil {
			return nil, fmt.Errorf("comparing fields: %w", err)
		}
	}
	c.versions[apiVersion] = compared
	return compared, nil
}

// same returns those fields of an entry that have the same value in both objects.
func (c *comparison) same(ctx context.Context, fields *fieldpath.Set, entry *metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	same := fieldpath.NewSet()
	version, err := c.in(entry.APIVersion)
	if err != nil || version == nil {
		return same, err
	}
	paths := 0
	fields.Iterate(func(path fieldpath.Path) {
		if paths++; paths%1000 == 0 && err == nil {
			err = ctx.Err()
		}
		if err == nil && version.isEqual(path) {
			same.Insert(path.Copy())
		}
	})
	return same, err
}

// isEqual reports whether a field is known to have the same value in both objects, or to be of an
// item that neither has.
func (v *comparedVersion) isEqual(path fieldpath.Path) bool {
	was, wasKnown := v.items[0].valueAt(v.fields[0], path)
	is, isKnown := v.items[1].valueAt(v.fields[1], path)
	if !wasKnown || !isKnown {
		return false
	}
	pair := [2]uintptr{identity(was), identity(is)}
	if pair[0] == 0 || pair[1] == 0 {
		return reflect.DeepEqual(was, is)
	}
	equal, ok := v.equal[pair]
	if !ok {
		equal = reflect.DeepEqual(was, is)
		v.equal[pair] = equal
	}
	return equal
}

// identity returns the address of an object or a list in decoded JSON; 0 for other values.
func identity(is any) uintptr {
	switch value := reflect.ValueOf(is); value.Kind() {
	case reflect.Map, reflect.Slice:
		return value.Pointer()
	default:
		return 0
	}
}
