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

// ScaledField is the path in an object of the field that a scale writes, by the version of the
// object.
type ScaledField map[schema.GroupVersion]fieldpath.Path

// ScaleOwnership converts the managed fields of an object to those of its scale, and back after
// an update of the scale. Unlike managedfields.ScaleHandler, it does not take the field from
// managers that own it by an update when a scale changes nothing.
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

// OfScale returns the entries of the scale: of the managers that own the scaled field.
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

// OfObject returns the entries of the object after an update that left these entries of its scale.
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

// owned returns the fields of an entry of the object, and reports whether the scaled field is one
// of them.
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
		return nil // no object has this version
	}
	return o.field[version]
}

// shown returns an entry of the object as one of the scale. A manager that updates in two versions
// has an entry in each.
func (o *ScaleOwnership) shown(entry metav1.ManagedFieldsEntry) (metav1.ManagedFieldsEntry, error) {
	if entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.APIVersion != o.version.String() {
		entry.Manager = managerInVersion(&entry)
	}
	entry.APIVersion = autoscalingv1.SchemeGroupVersion.String()
	var err error
	entry.FieldsV1, err = encoded(fieldpath.NewSet(replicasOfScale))
	return entry, err
}
