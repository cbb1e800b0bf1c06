// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Server-side apply prunes in the versions of all managers, and converts the object from one to
// the next. A version that cannot say all that another can would lose, on that way, what the
// others own. So for the time of one apply all that is owned is told in the words of its
// version, and what these cannot say is put aside.
//
//	owned in agents.kruise.io             spec.templateRef.name, spec.patch
//	in an apply to agent-sandbox's pools  spec.sandboxTemplateRef.name
//	after it                              spec.templateRef.name, spec.patch
//
// All other writes only compare the object before and after them, in the version of each
// manager, which loses nothing. They see managed fields as they are stored, which is also how
// an update of all of the object carries them.

// sharedFields are the fields that have the same meaning in all versions, by group and kind:
// the path in the group that objects are stored in, and the one in that version. What is
// below them is the same.
type sharedFields [][2]string

var (
	claimFields = sharedFields{
		{"spec.sandboxTemplateRef", "spec.sandboxTemplateRef"}, {"spec.warmPool", "spec.warmpool"}, {"spec.lifecycle", "spec.lifecycle"},
		{"spec.additionalPodMetadata", "spec.additionalPodMetadata"}, {"spec.env", "spec.env"}, {"status.conditions", "status.conditions"},
	}
	claimFieldsNow = append(slices.Clone(claimFields),
		[2]string{"spec.warmPoolRef", "spec.warmPoolRef"}, [2]string{"spec.volumeClaimTemplates", "spec.volumeClaimTemplates"})
	templateFields = sharedFields{
		{"spec.template", "spec.podTemplate"}, {"spec.volumeClaimTemplates", "spec.volumeClaimTemplates"}, {"spec.service", "spec.service"},
		{"spec.networkPolicy", "spec.networkPolicy"}, {"spec.networkPolicyManagement", "spec.networkPolicyManagement"},
		{"spec.envVarsInjectionPolicy", "spec.envVarsInjectionPolicy"}, {"spec.volumeClaimTemplatesPolicy", "spec.volumeClaimTemplatesPolicy"},
	}
	poolFields = sharedFields{
		{"spec.replicas", "spec.replicas"}, {"spec.templateRef.name", "spec.sandboxTemplateRef.name"},
		{"spec.updateStrategy.type", "spec.updateStrategy.type"}, {"status.replicas", "status.replicas"},
		{"status.availableReplicas", "status.readyReplicas"}, {"status.observedGeneration", "status.observedGeneration"},
		{"status.conditions", "status.conditions"},
	}
	poolFieldsNow = append(slices.Clone(poolFields), [2]string{"spec.claimDefaults", "spec.claimDefaults"})
	sandboxFields = sharedFields{
		{"spec.template", "spec.podTemplate"}, {"spec.volumeClaimTemplates", "spec.volumeClaimTemplates"}, {"spec.service", "spec.service"},
		{"spec.shutdownTime", "spec.shutdownTime"},
	}
)

// fieldsOf returns the fields of an object that a version shares with the stored one.
func fieldsOf(obj runtime.Object, version schema.GroupVersion) sharedFields {
	old := version.Version == "v1alpha1"
	switch obj.(type) {
	case *v1alpha1.SandboxClaim:
		if old {
			return claimFields
		}
		return claimFieldsNow
	case *v1alpha1.SandboxTemplate:
		return templateFields
	case *v1alpha1.SandboxSet:
		if old {
			return poolFields
		}
		return poolFieldsNow
	case *v1alpha1.Sandbox:
		if old {
			return append(slices.Clone(sandboxFields), [2]string{"spec.paused", "spec.replicas"})
		}
		return append(slices.Clone(sandboxFields), [2]string{"spec.paused", "spec.operatingMode"})
	}
	return nil
}

// translate tells a path of one version in the words of another; nil if they have none.
func translate(path fieldpath.Path, obj runtime.Object, from, to schema.GroupVersion) fieldpath.Path {
	if len(path) > 0 && path[0].FieldName != nil && *path[0].FieldName == "metadata" {
		return path
	}
	stored := move(path, fieldsOf(obj, from), from, 1, 0)
	return move(stored, fieldsOf(obj, to), to, 0, 1)
}

// move replaces the beginning of a path. The stored version has no other words.
func move(path fieldpath.Path, fields sharedFields, version schema.GroupVersion, from, to int) fieldpath.Path {
	if path == nil || version.Group == v1alpha1.GroupName {
		return path
	}
	for _, pair := range fields {
		is, becomes := strings.Split(pair[from], "."), strings.Split(pair[to], ".")
		if len(path) < len(is) || !slices.EqualFunc(is, path[:len(is)], func(name string, element fieldpath.PathElement) bool {
			return element.FieldName != nil && *element.FieldName == name
		}) {
			continue
		}
		moved := make(fieldpath.Path, 0, len(path))
		for _, name := range becomes {
			moved = append(moved, fieldpath.PathElement{FieldName: &name})
		}
		return append(moved, path[len(is):]...)
	}
	return nil
}

// foreign is what a manager owns in another version than that of an apply.
type foreign struct {
	entry metav1.ManagedFieldsEntry
	from  schema.GroupVersion
	// shown is how it is called for the time of the apply.
	shown string
	// told are its fields in the words of the apply, by the path in its own.
	told []toldField
	// aside are its fields that have no words there.
	aside *fieldpath.Set
}

type toldField struct{ is, shown fieldpath.Path }

// inOneVersion is an apply that sees what all managers own in the words of the version of its
// request, and loses nothing of what it does not see.
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
	entries, others, err := tell(before, version)
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
	return after, restore(after, others, version, applier(ctx, u.manager))
}

// tell returns the entries of an object in the words of a version, and how they were.
func tell(obj Object, version schema.GroupVersion) ([]metav1.ManagedFieldsEntry, []foreign, error) {
	var entries []metav1.ManagedFieldsEntry
	var others []foreign
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
		other := foreign{entry: entry, from: from, shown: entry.Manager, aside: fieldpath.NewSet()}
		// Who updates in two versions has an entry in each.
		if entry.Operation == metav1.ManagedFieldsOperationUpdate {
			other.shown = inVersion(&entry)
		}
		owned.Iterate(func(path fieldpath.Path) {
			if moved := translate(path, obj, from, version); moved != nil {
				other.told = append(other.told, toldField{path.Copy(), moved.Copy()})
			} else {
				other.aside.Insert(path.Copy())
			}
		})
		others = append(others, other)
		// An entry without fields is shown, too: an object without entries has no managers
		// yet, and an apply would make one up that owns all of it.
		shown := entry
		shown.Manager, shown.APIVersion = other.shown, version.String()
		if shown.FieldsV1, err = encoded(other.shownFields()); err != nil {
			return nil, nil, err
		}
		entries = append(entries, shown)
	}
	return entries, others, nil
}

func (f *foreign) shownFields() *fieldpath.Set {
	shown := fieldpath.NewSet()
	for _, field := range f.told {
		shown.Insert(field.shown)
	}
	return shown
}

// restore gives the managers of other versions their words back, with what was put aside.
// applied is the entry of who applies.
func restore(obj Object, others []foreign, version schema.GroupVersion, applied *metav1.ManagedFieldsEntry) error {
	entries := obj.GetManagedFields()
	for _, other := range others {
		entry, left := other.entry, fieldpath.NewSet()
		at := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == other.shown && e.Operation == entry.Operation && e.Subresource == entry.Subresource && e.APIVersion == version.String()
		})
		if at >= 0 {
			var err error
			if left, err = decoded(&entries[at]); err != nil {
				return err
			}
		}
		owned := other.left(left)
		if at >= 0 && sameManager(&entry, applied) && (!left.Equals(other.shownFields()) || !entries[at].Time.Equal(entry.Time)) {
			if owned = other.appliedAnew(left, obj, version); owned == nil {
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

// left returns what a manager that has not applied still owns. A field whose parts have become
// fields, or that has become a part of one, as schemas differ, is left.
func (f *foreign) left(shown *fieldpath.Set) *fieldpath.Set {
	owned := f.aside.Union(fieldpath.NewSet())
	for _, field := range f.told {
		if covers(shown, field.shown) {
			owned.Insert(field.is)
		}
	}
	return owned
}

func covers(set *fieldpath.Set, path fieldpath.Path) bool {
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

// appliedAnew returns what a manager owns, in the words that it had, that has applied something
// else in the version of a request. It returns nil if the manager owns just what it has applied,
// in that version: that is so, as in other groups, unless some of its fields have no words there.
// Those would have no owner any more, and would never be removed.
func (f *foreign) appliedAnew(now *fieldpath.Set, obj Object, version schema.GroupVersion) *fieldpath.Set {
	if f.aside.Empty() {
		return nil
	}
	owned := f.aside.Union(fieldpath.NewSet())
	has := true
	now.Iterate(func(path fieldpath.Path) {
		moved := translate(path, obj, version, f.from)
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

// inVersion is how a manager is called beside itself in another version.
func inVersion(entry *metav1.ManagedFieldsEntry) string {
	return entry.Manager + " in " + entry.APIVersion
}
