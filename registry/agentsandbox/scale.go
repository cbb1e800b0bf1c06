// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentsandbox

import (
	"context"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	agents "github.com/sandlot-io/sandlot/apis/agents/v1alpha1"
	agentsv1beta1 "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// sandboxScale is the only subresource that not all versions of a group have.
const sandboxScale = "sandboxes/scale"

var (
	scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

	// runsPaths is where the field that a scale writes stands in a sandbox, in each version
	// that sandboxes are served in, so that its ownership moves along.
	runsPaths = base.ScaledField{
		v1alpha1.SchemeGroupVersion:      fieldpath.MakePathOrDie("spec", "paused"),
		agentsv1beta1.SchemeGroupVersion: fieldpath.MakePathOrDie("spec", "operatingMode"),
		agents.SchemeGroupVersion:        fieldpath.MakePathOrDie("spec", "replicas"),
	}
)

// ServedIn returns of the storage of a group what one of its versions serves.
func ServedIn(version schema.GroupVersion, storage map[string]rest.Storage) map[string]rest.Storage {
	if storage[sandboxScale] == nil || version == agents.SchemeGroupVersion {
		return storage
	}
	served := maps.Clone(storage)
	delete(served, sandboxScale)
	return served
}

// scaleREST serves as autoscaling/v1 Scale whether a sandbox runs: at 1 it does, and at 0 it
// is suspended. It has no other size.
type scaleREST struct {
	rest.TableConvertor
	store *genericregistry.Store
}

var (
	_ rest.Patcher                  = &scaleREST{}
	_ rest.GroupVersionKindProvider = &scaleREST{}
	_ rest.TableConvertor           = &scaleREST{}
)

// GroupVersionKind tells discovery that this is no kind of the group.
func (*scaleREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind { return scaleKind }

// New returns an empty Scale.
func (*scaleREST) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy does nothing: the storage underneath belongs to the main resource.
func (*scaleREST) Destroy() {}

// Get reads the scale of a sandbox.
func (r *scaleREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return scaleOf(obj.(*v1alpha1.Sandbox)), nil
}

// Update suspends a sandbox or lets it run, and writes nothing else of it. Validation and
// admission of the sandbox run too, and admission of the scale sees scales. A sandbox does
// not come into being by being scaled.
func (r *scaleREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	if updateValidation == nil {
		updateValidation = rest.ValidateAllObjectUpdateFunc
	}
	info := &scaledSandbox{name: name, scale: base.ShareScale(objInfo, forceAllowCreate, options), resource: r.store.DefaultQualifiedResource}
	obj, _, err := r.store.Update(ctx, name, info, rest.ValidateAllObjectFunc,
		func(ctx context.Context, obj, old runtime.Object) error {
			return updateValidation(ctx, scaleOf(obj.(*v1alpha1.Sandbox)), scaleOf(old.(*v1alpha1.Sandbox)))
		}, false, options)
	if err != nil {
		return nil, false, err
	}
	return scaleOf(obj.(*v1alpha1.Sandbox)), false, nil
}

// scaleOf is the scale of a sandbox, without managed fields.
func scaleOf(sandbox *v1alpha1.Sandbox) *autoscalingv1.Scale {
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              sandbox.Name,
			Namespace:         sandbox.Namespace,
			UID:               sandbox.UID,
			ResourceVersion:   sandbox.ResourceVersion,
			CreationTimestamp: sandbox.CreationTimestamp,
		},
		Status: autoscalingv1.ScaleStatus{Selector: agentsv1beta1.SelectorOf(sandbox)},
	}
	if !sandbox.Spec.Paused {
		scale.Spec.Replicas = 1
	}
	if agentsv1beta1.HasPod(sandbox) {
		scale.Status.Replicas = 1
	}
	return scale
}

// scaledSandbox turns an update of a scale into an update of its sandbox. The store calls
// it again with a fresher sandbox when it lost a race.
type scaledSandbox struct {
	name     string
	scale    rest.UpdatedObjectInfo
	resource schema.GroupResource // of the sandbox
}

// Preconditions are those of the scale: its UID is the sandbox's.
func (i *scaledSandbox) Preconditions() *metav1.Preconditions { return i.scale.Preconditions() }

// UpdatedObject returns the stored sandbox at the size that the scale asks for.
func (i *scaledSandbox) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	sandbox, ok := old.DeepCopyObject().(*v1alpha1.Sandbox)
	if !ok {
		return nil, fmt.Errorf("scaling %s: stored object is a %T", i.name, old)
	}
	resource := schema.GroupResource{Group: i.resource.Group, Resource: sandboxScale}
	if sandbox.ResourceVersion == "" {
		return nil, apierrors.NewNotFound(resource, i.name)
	}

	ownership := base.NewScaleOwnership(ctx, sandbox.ManagedFields, runsPaths)
	stored := scaleOf(sandbox)
	var err error
	if stored.ManagedFields, err = ownership.OfScale(); err != nil {
		return nil, fmt.Errorf("reading managed fields of sandbox %s: %w", i.name, err)
	}
	obj, err := i.scale.UpdatedObject(ctx, stored)
	if err != nil {
		return nil, err
	}
	wanted, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a Scale, got %T", obj))
	}
	if errs := validateScale(wanted); len(errs) > 0 {
		return nil, apierrors.NewInvalid(scaleKind.GroupKind(), i.name, errs)
	}
	if wanted.UID != "" && wanted.UID != sandbox.UID {
		return nil, apierrors.NewConflict(resource, i.name,
			fmt.Errorf("the UID in the precondition is %s, the UID of the sandbox is %s", wanted.UID, sandbox.UID))
	}

	sandbox.Spec.Paused = wanted.Spec.Replicas == 0
	if wanted.ResourceVersion != "" { // the store compares it with the one stored
		sandbox.ResourceVersion = wanted.ResourceVersion
	}
	if sandbox.ManagedFields, err = ownership.OfObject(wanted.ManagedFields); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("managed fields of the scale: %v", err))
	}
	return sandbox, nil
}

// validateScale validates the fields of a scale.
func validateScale(scale *autoscalingv1.Scale) field.ErrorList {
	if n := scale.Spec.Replicas; n != 0 && n != 1 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), n, "must be 1, or 0 to suspend the sandbox")}
	}
	return nil
}
