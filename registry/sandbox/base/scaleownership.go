// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// replicasOfScale is the field of a scale that can be written.
var replicasOfScale = fieldpath.MakePathOrDie("spec", "replicas")

// ScaledField is where the field that a scale writes stands in an object, by the version that
// the object is served in.
type ScaledField map[schema.GroupVersion]fieldpath.Path

// ScaleOwnership shows on a scale who owns the field that it writes, and moves what an update of
// the scale makes of that back to the object. It does what managedfields.ScaleHandler does, but
// that takes the field, in an update that changes nothing, from who owns it by an update.
type ScaleOwnership struct {
	entries []metav1.ManagedFieldsEntry
	version schema.GroupVersion
	field   ScaledField
}

// NewScaleOwnership returns the ownership of an object with these entries, in a request for its
// scale.
func NewScaleOwnership(ctx context.Context, entries []metav1.ManagedFieldsEntry, field ScaledField) *ScaleOwnership {
	return &ScaleOwnership{entries: entries, version: GroupOf(ctx), field: field}
}

// OfScale returns the entries of the scale.
func (o *ScaleOwnership) OfScale() ([]metav1.ManagedFieldsEntry, error) {
	var shown []metav1.ManagedFieldsEntry
	for _, entry := range o.entries {
		_, owns, err := o.owned(&entry)
		if err != nil {
			return nil, err
		}
		if owns {
			is, err := o.shown(entry)
			if err != nil {
				return nil, err
			}
			shown = append(shown, is)
		}
	}
	return shown, nil
}

// OfObject returns the entries of the object, after an update that has left these of its scale.
func (o *ScaleOwnership) OfObject(scale []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	scale = slices.Clone(scale)
	var entries []metav1.ManagedFieldsEntry
	for _, entry := range o.entries {
		owned, owns, err := o.owned(&entry)
		if err != nil {
			return nil, err
		}
		if owns {
			is, err := o.shown(entry)
			if err != nil {
				return nil, err
			}
			at := slices.IndexFunc(scale, func(e metav1.ManagedFieldsEntry) bool { return sameManager(&e, &is) })
			if at >= 0 {
				entry.Time = scale[at].Time
				scale = slices.Delete(scale, at, at+1)
			} else if owned = owned.Difference(fieldpath.NewSet(o.fieldOf(&entry))); owned.Empty() {
				continue
			} else if entry.FieldsV1, err = encoded(owned); err != nil {
				return nil, err
			}
		}
		entries = append(entries, entry)
	}
	for _, entry := range scale {
		owned, err := decoded(&entry)
		if err != nil {
			return nil, err
		}
		if !owned.Has(replicasOfScale) {
			continue
		}
		entry.APIVersion = o.version.String()
		if entry.FieldsV1, err = encoded(fieldpath.NewSet(o.field[o.version])); err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	sortEntries(entries)
	return entries, nil
}

// owned is what an entry of the object owns, and whether the scaled field is of it.
func (o *ScaleOwnership) owned(entry *metav1.ManagedFieldsEntry) (*fieldpath.Set, bool, error) {
	field := o.fieldOf(entry)
	if field == nil || entry.FieldsV1 == nil {
		return nil, false, nil
	}
	owned, err := decoded(entry)
	if err != nil {
		return nil, false, err
	}
	return owned, owned.Has(field), nil
}

func (o *ScaleOwnership) fieldOf(entry *metav1.ManagedFieldsEntry) fieldpath.Path {
	version, err := schema.ParseGroupVersion(entry.APIVersion)
	if err != nil {
		return nil // which is a version that nothing is served in
	}
	return o.field[version]
}

// shown is an entry of the object on the scale. Who updates in two versions has an entry in each.
func (o *ScaleOwnership) shown(entry metav1.ManagedFieldsEntry) (metav1.ManagedFieldsEntry, error) {
	if entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.APIVersion != o.version.String() {
		entry.Manager = inVersion(&entry)
	}
	entry.APIVersion = autoscalingv1.SchemeGroupVersion.String()
	var err error
	entry.FieldsV1, err = encoded(fieldpath.NewSet(replicasOfScale))
	return entry, err
}
