// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Server-side apply removes fields that a manager applied before and does not apply any more,
// if no other manager owns them. For this it converts the object to the version of each manager,
// one after the other. A version does not have all fields of the others, so it would lose fields
// of other managers. Therefore an apply sees all managed fields in the version of its request,
// without those that this version does not have. Afterwards they are translated back.
//
//	managed fields in agents.kruise.io      spec.templateRef.name, spec.patch
//	during an apply to a SandboxWarmPool    spec.sandboxTemplateRef.name
//	afterwards                              spec.templateRef.name, spec.patch
//
// All other writes only compare the object before and after them, in the version of each
// manager, which loses nothing. They see managed fields as they are stored, and as an update of
// the whole object contains them.

// otherEntry is the entry of a manager in another version than that of an apply.
type otherEntry struct {
	entry   metav1.ManagedFieldsEntry
	version schema.GroupVersion
	// manager is the name of the manager during the apply.
	manager string
	// translated are the fields that the version of the apply has.
	translated []translatedField
	// missing are the fields that the version of the apply does not have.
	missing *fieldpath.Set
}

// translatedField is the path of a field in the version of its manager, and in that of an apply.
type translatedField struct{ own, applied fieldpath.Path }

// inOneVersion is an apply that sees the managed fields of all managers in the version of its
// request, and keeps those that this version does not have.
type inOneVersion struct {
	rest.UpdatedObjectInfo
	// manager is the manager that applies.
	manager string
}

// UpdatedObject implements rest.UpdatedObjectInfo.
func (u *inOneVersion) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	before, ok := old.(Object)
	version := GroupOf(ctx)
	if !ok || !slices.ContainsFunc(before.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.APIVersion != version.String() }) {
		return u.UpdatedObjectInfo.UpdatedObject(ctx, old)
	}
	before = before.DeepCopyObject().(Object)
	entries, others, err := translateEntries(before, version)
	if err != nil {
		return nil, err
	}
	before.SetManagedFields(entries)
	updated, err := u.UpdatedObjectInfo.UpdatedObject(ctx, before)
	if err != nil {
		return nil, err
	}
	after, ok := updated.(Object)
	if !ok {
		return updated, nil
	}
	after = after.DeepCopyObject().(Object)
	return after, restoreEntries(after, others, version, applier(ctx, u.manager))
}

// translateEntries returns the entries of an object in a version, and those of other versions as
// they were.
func translateEntries(obj Object, version schema.GroupVersion) ([]metav1.ManagedFieldsEntry, []otherEntry, error) {
	var entries []metav1.ManagedFieldsEntry
	var others []otherEntry
	for _, entry := range obj.GetManagedFields() {
		from, err := schema.ParseGroupVersion(entry.APIVersion)
		if err != nil || from == version || entry.FieldsV1 == nil || !slices.Contains(v1alpha1.ServedVersions, from) {
			entries = append(entries, entry)
			continue
		}
		owned, err := decoded(&entry)
		if err != nil {
			return nil, nil, err
		}
		other := otherEntry{entry: entry, version: from, manager: entry.Manager, missing: fieldpath.NewSet()}
		// A manager that updates in two versions has an entry in each.
		if entry.Operation == metav1.ManagedFieldsOperationUpdate {
			other.manager = managerInVersion(&entry)
		}
		owned.Iterate(func(path fieldpath.Path) {
			if moved := translate(path, obj, from, version); moved != nil {
				other.translated = append(other.translated, translatedField{path.Copy(), moved.Copy()})
			} else {
				other.missing.Insert(path.Copy())
			}
		})
		others = append(others, other)
		// An entry without fields is kept, too: if an object has no entries, an apply adds a
		// manager that owns all fields.
		translated := entry
		translated.Manager, translated.APIVersion = other.manager, version.String()
		if translated.FieldsV1, err = encoded(other.fields()); err != nil {
			return nil, nil, err
		}
		entries = append(entries, translated)
	}
	return entries, others, nil
}

// fields returns the fields of the entry during the apply.
func (o *otherEntry) fields() *fieldpath.Set {
	fields := fieldpath.NewSet()
	for _, field := range o.translated {
		fields.Insert(field.applied)
	}
	return fields
}

// restoreEntries translates the entries of other versions back after an apply, and adds their
// fields that it did not see. applied names the manager that applied.
func restoreEntries(obj Object, others []otherEntry, version schema.GroupVersion, applied *metav1.ManagedFieldsEntry) error {
	entries := obj.GetManagedFields()
	for _, other := range others {
		entry, left := other.entry, fieldpath.NewSet()
		at := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == other.manager && e.Operation == entry.Operation && e.Subresource == entry.Subresource && e.APIVersion == version.String()
		})
		if at >= 0 {
			var err error
			if left, err = decoded(&entries[at]); err != nil {
				return err
			}
		}
		owned := other.remaining(left)
		if at >= 0 && sameManager(&entry, applied) && (!left.Equals(other.fields()) || !entries[at].Time.Equal(entry.Time)) {
			if owned = other.appliedAgain(left, obj, version); owned == nil {
				continue
			}
			entry.Time = entries[at].Time
		}
		if at >= 0 {
			entries = slices.Delete(entries, at, at+1)
		}
		if owned.Empty() {
			continue
		}
		var err error
		if entry.FieldsV1, err = encoded(owned); err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	sortEntries(entries)
	obj.SetManagedFields(entries)
	return nil
}

// remaining returns the fields of the entry that its manager still owns after the apply of
// another one, which left these. The schemas of two versions can differ in whether they own a
// structure or its parts: a field remains if anything above or below it does.
func (o *otherEntry) remaining(left *fieldpath.Set) *fieldpath.Set {
	owned := o.missing.Union(fieldpath.NewSet())
	for _, field := range o.translated {
		if overlaps(left, field.applied) {
			owned.Insert(field.own)
		}
	}
	return owned
}

// overlaps reports whether a set has a path, or anything above or below it.
func overlaps(set *fieldpath.Set, path fieldpath.Path) bool {
	for n := 1; n <= len(path); n++ {
		if set.Has(path[:n]) {
			return true
		}
	}
	for _, element := range path {
		set = set.WithPrefix(element)
	}
	return !set.Empty()
}

// appliedAgain returns the fields, in the version of the entry, of a manager that has now applied
// these in the version of a request. It returns nil if the manager has an entry in the version
// of the request from now on, as in other groups. It keeps its entry if that has fields which
// the version of the request does not have: they would have no owner otherwise, and would never
// be removed.
func (o *otherEntry) appliedAgain(now *fieldpath.Set, obj Object, version schema.GroupVersion) *fieldpath.Set {
	if o.missing.Empty() {
		return nil
	}
	owned := o.missing.Union(fieldpath.NewSet())
	has := true
	now.Iterate(func(path fieldpath.Path) {
		moved := translate(path, obj, version, o.version)
		if moved == nil {
			has = false
			return
		}
		owned.Insert(moved.Copy())
	})
	if !has {
		return nil
	}
	return owned
}

// managerInVersion returns a name for a manager that can have an entry in another version beside this.
func managerInVersion(entry *metav1.ManagedFieldsEntry) string {
	return entry.Manager + " in " + entry.APIVersion
}
