// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// ScaledObject is an object that has a scale.
type ScaledObject interface {
	runtime.Object
	metav1.Object
}

// Scaled says what the scale of an object is.
type Scaled[T ScaledObject] struct {
	// Kind is what errors call the object.
	Kind string
	// Field is the field of the object that a scale writes. Its ownership moves along.
	Field ScaledField
	// Of returns spec and status of the scale of an object.
	Of func(object T) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus)
	// Resize writes the replicas of a scale to an object.
	Resize func(object T, replicas int32)
	// Refusal returns why an object cannot have so many replicas; empty if it can.
	Refusal func(replicas int32) string
}

// ScaleREST serves the size of the objects of a store as autoscaling/v1 Scale: what `kubectl scale`
// and autoscalers know how to read and write.
type ScaleREST[T ScaledObject] struct {
	rest.TableConvertor
	Store  *genericregistry.Store
	Scaled Scaled[T]
}

var (
	_ rest.Patcher                  = &ScaleREST[ScaledObject]{}
	_ rest.GroupVersionKindProvider = &ScaleREST[ScaledObject]{}
	_ rest.TableConvertor           = &ScaleREST[ScaledObject]{}
)

// GroupVersionKind implements rest.GroupVersionKindProvider: this is no kind of our groups.
func (*ScaleREST[T]) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind { return scaleKind }

// New returns an empty Scale.
func (*ScaleREST[T]) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy does nothing: the storage underneath belongs to the main resource.
func (*ScaleREST[T]) Destroy() {}

// Get reads the scale of an object.
func (r *ScaleREST[T]) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := getObject(ctx, r.Store, name, options)
	if err != nil {
		return nil, err
	}
	return r.scaleOf(obj.(T)), nil
}

// Update writes the size of an object, and nothing else of it. Validation and admission of the object run too,
// and admission of the scale sees scales. An object does not come into being by being scaled.
func (r *ScaleREST[T]) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	if updateValidation == nil {
		updateValidation = rest.ValidateAllObjectUpdateFunc
	}
	info := &scaledObjectInfo[T]{name: name, scale: ShareScale(objInfo, forceAllowCreate, options), scales: r}
	obj, _, err := r.Store.Update(ctx, name, info, rest.ValidateAllObjectFunc,
		func(ctx context.Context, obj, old runtime.Object) error {
			return updateValidation(ctx, r.scaleOf(obj.(T)), r.scaleOf(old.(T)))
		}, false, options)
	if err != nil {
		return nil, false, err
	}
	return r.scaleOf(obj.(T)), false, nil
}

// scaleOf is the scale of an object, without managed fields.
func (r *ScaleREST[T]) scaleOf(object T) *autoscalingv1.Scale {
	spec, status := r.Scaled.Of(object)
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              object.GetName(),
			Namespace:         object.GetNamespace(),
			UID:               object.GetUID(),
			ResourceVersion:   object.GetResourceVersion(),
			CreationTimestamp: object.GetCreationTimestamp(),
		},
		Spec:   spec,
		Status: status,
	}
}

// scaledObjectInfo turns an update of a scale into an update of its object:
//
//	stored object -> stored scale -> (the client's change) -> wanted scale -> wanted object
//
// The store calls it again with a fresher object when it lost a race, so whatever
// depends on the object is worked out inside.
type scaledObjectInfo[T ScaledObject] struct {
	name   string
	scale  rest.UpdatedObjectInfo
	scales *ScaleREST[T]
}

// resource is that of the scale, as the client names it.
func (i *scaledObjectInfo[T]) resource() schema.GroupResource {
	resource := i.scales.Store.DefaultQualifiedResource
	resource.Resource += "/scale"
	return resource
}

// Preconditions are those of the scale: its UID is the object's.
func (i *scaledObjectInfo[T]) Preconditions() *metav1.Preconditions { return i.scale.Preconditions() }

// UpdatedObject returns the stored object at the size that the scale asks for.
func (i *scaledObjectInfo[T]) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	end, err := BeginUpdate(ctx, old)
	if err != nil {
		return nil, err
	}
	defer end()
	object, ok := old.DeepCopyObject().(T)
	if !ok {
		return nil, fmt.Errorf("scaling %s: stored object is a %T", i.name, old)
	}
	if object.GetResourceVersion() == "" {
		return nil, apierrors.NewNotFound(i.resource(), i.name)
	}
	scaled := i.scales.Scaled
	ownership := NewScaleOwnership(ctx, object.GetManagedFields(), scaled.Field)
	stored := i.scales.scaleOf(object)
	if stored.ManagedFields, err = ownership.OfScale(); err != nil {
		return nil, fmt.Errorf("reading managed fields of %s %s: %w", scaled.Kind, i.name, err)
	}
	obj, err := i.scale.UpdatedObject(ctx, stored)
	if err != nil {
		return nil, err
	}
	wanted, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a Scale, got %T", obj))
	}
	if refusal := scaled.Refusal(wanted.Spec.Replicas); refusal != "" {
		// The field is the scale's, which is what the client wrote.
		return nil, apierrors.NewInvalid(scaleKind.GroupKind(), i.name,
			field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), wanted.Spec.Replicas, refusal)})
	}
	if wanted.UID != "" && wanted.UID != object.GetUID() {
		return nil, apierrors.NewConflict(i.resource(), i.name,
			fmt.Errorf("the UID in the precondition is %s, the UID of the %s is %s", wanted.UID, scaled.Kind, object.GetUID()))
	}
	scaled.Resize(object, wanted.Spec.Replicas)
	if wanted.ResourceVersion != "" { // the store compares it with the one stored
		object.SetResourceVersion(wanted.ResourceVersion)
	}
	entries, err := ownership.OfObject(wanted.ManagedFields)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("managed fields of the scale: %v", err))
	}
	object.SetManagedFields(entries)
	return object, nil
}
