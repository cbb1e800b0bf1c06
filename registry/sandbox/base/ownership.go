// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Server-side apply compares what managers own in the version of each, and converts the
// object to it. A group that cannot say all that another can would lose, on that way, what
// the others own. So for the time of one request all that is owned is told in the words of
// its version, and what these cannot say is put aside.
//
//	owned in agents.kruise.io             spec.templateRef.name, spec.patch
//	in a request to agent-sandbox's pools spec.sandboxTemplateRef.name
//	after it                              spec.templateRef.name, spec.patch

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

// foreign is what a manager owns in another version than that of a request.
type foreign struct {
	entry metav1.ManagedFieldsEntry
	// shown is how it is called for the time of the request.
	shown string
	told  *fieldpath.Set
	aside *fieldpath.Set
}

// InOneVersion returns an update that sees what all managers own in the words of the version
// of its request, and loses nothing of what it does not see.
func InOneVersion(info rest.UpdatedObjectInfo) rest.UpdatedObjectInfo {
	return &inOneVersion{KeepText(info)}
}

type inOneVersion struct {
	rest.UpdatedObjectInfo
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
	if len(after.GetManagedFields()) == 0 {
		return after, nil // a client takes all away
	}
	return after, restore(after, others, version)
}

// tell returns the entries of an object in the words of a version, and how they were.
func tell(obj Object, version schema.GroupVersion) ([]metav1.ManagedFieldsEntry, []foreign, error) {
	var entries []metav1.ManagedFieldsEntry
	var others []foreign
	for _, entry := range obj.GetManagedFields() {
		from, err := schema.ParseGroupVersion(entry.APIVersion)
		if err != nil || entry.APIVersion == version.String() || entry.FieldsV1 == nil || !slices.Contains(v1alpha1.ServedVersions, from) {
			entries = append(entries, entry)
			continue
		}
		other := foreign{entry: entry, shown: entry.Manager, told: fieldpath.NewSet(), aside: fieldpath.NewSet()}
		// Who updates in two versions has an entry in each.
		if entry.Operation == metav1.ManagedFieldsOperationUpdate {
			other.shown += " in " + entry.APIVersion
		}
		owned := &fieldpath.Set{}
		if err := owned.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return nil, nil, fmt.Errorf("reading what %s owns: %w", entry.Manager, err)
		}
		owned.Iterate(func(path fieldpath.Path) {
			if moved := translate(path, obj, from, version); moved != nil {
				other.told.Insert(moved.Copy())
			} else {
				other.aside.Insert(path.Copy())
			}
		})
		others = append(others, other)
		if other.told.Empty() {
			continue
		}
		shown := entry
		shown.Manager, shown.APIVersion = other.shown, version.String()
		if shown.FieldsV1, err = encoded(other.told); err != nil {
			return nil, nil, err
		}
		entries = append(entries, shown)
	}
	return entries, others, nil
}

// restore gives the managers of other versions their words back, with what was put aside.
func restore(obj Object, others []foreign, version schema.GroupVersion) error {
	entries := obj.GetManagedFields()
	for _, other := range others {
		at := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == other.shown && e.Operation == other.entry.Operation && e.Subresource == other.entry.Subresource && e.APIVersion == version.String()
		})
		owned := other.aside
		if at >= 0 {
			is := &fieldpath.Set{}
			if err := is.FromJSON(entries[at].FieldsV1.GetRawReader()); err != nil {
				return fmt.Errorf("reading what %s owns: %w", other.entry.Manager, err)
			}
			if !is.Difference(other.told).Empty() || appliedAnew(&entries[at], &other) {
				continue // it has applied in this version now, and owns what it has applied
			}
			from, err := schema.ParseGroupVersion(other.entry.APIVersion)
			if err != nil {
				return err
			}
			is.Iterate(func(path fieldpath.Path) {
				if moved := translate(path, obj, version, from); moved != nil {
					owned.Insert(moved.Copy())
				}
			})
			entries = slices.Delete(entries, at, at+1)
		}
		if owned.Empty() {
			continue
		}
		entry := other.entry
		var err error
		if entry.FieldsV1, err = encoded(owned); err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	obj.SetManagedFields(entries)
	return nil
}

// appliedAnew reports whether a manager has applied in this request.
func appliedAnew(is *metav1.ManagedFieldsEntry, was *foreign) bool {
	return is.Operation == metav1.ManagedFieldsOperationApply && !is.Time.Equal(was.entry.Time)
}

func encoded(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	raw, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("writing what a manager owns: %w", err)
	}
	return metav1.NewFieldsV1(string(raw)), nil
}
