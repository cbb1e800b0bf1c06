// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

var (
	scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

	// replicasPaths is where the field that a scale writes stands in a set, in each version
	// that sets are served in, so that its ownership moves along when a set is scaled.
	replicasPaths = base.ScaledField{}
)

func init() {
	for _, version := range v1alpha1.ServedVersions {
		replicasPaths[version] = fieldpath.MakePathOrDie("spec", "replicas")
	}
}

// ScaleREST serves the size of a pool as autoscaling/v1 Scale: what
// `kubectl scale` and autoscalers know how to read and write.
type ScaleREST struct {
	rest.TableConvertor
	store *genericregistry.Store
	// selector finds the unused sandboxes of a set.
	selector func(set *v1alpha1.SandboxSet) string
}

var (
	_ rest.Patcher                  = &ScaleREST{}
	_ rest.GroupVersionKindProvider = &ScaleREST{}
	_ rest.TableConvertor           = &ScaleREST{}
)

func newScaleREST(store *genericregistry.Store, c clock.PassiveClock) *ScaleREST {
	return &ScaleREST{TableConvertor: newScaleTableConvertor(c), store: store, selector: selectorOf}
}

// In returns the scale of sets as another group serves them, from its store and with its
// selector.
func (r *ScaleREST) In(store *genericregistry.Store, selector func(*v1alpha1.SandboxSet) string) *ScaleREST {
	return &ScaleREST{TableConvertor: r.TableConvertor, store: store, selector: selector}
}

// GroupVersionKind tells discovery that this is no kind of our own group.
func (*ScaleREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind { return scaleKind }

// New returns an empty Scale.
func (*ScaleREST) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy does nothing: the storage underneath belongs to the main resource.
func (*ScaleREST) Destroy() {}

// Get reads the scale of a set.
func (r *ScaleREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return r.scaleOf(obj.(*v1alpha1.SandboxSet)), nil
}

// Update writes the replicas of a set, and nothing else of it. Validation and
// admission of the set run too, and admission of the scale sees scales.
// A set does not come into being by being scaled.
func (r *ScaleREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	if updateValidation == nil {
		updateValidation = rest.ValidateAllObjectUpdateFunc
	}
	obj, _, err := r.store.Update(ctx, name, &scaledObjectInfo{name: name, scale: base.ShareScale(objInfo, forceAllowCreate, options), scales: r}, rest.ValidateAllObjectFunc,
		func(ctx context.Context, obj, old runtime.Object) error {
			return updateValidation(ctx, r.scaleOf(obj.(*v1alpha1.SandboxSet)), r.scaleOf(old.(*v1alpha1.SandboxSet)))
		}, false, options)
	if err != nil {
		return nil, false, err
	}
	return r.scaleOf(obj.(*v1alpha1.SandboxSet)), false, nil
}

// scaleOf is the scale of a set, without managed fields.
func (r *ScaleREST) scaleOf(set *v1alpha1.SandboxSet) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              set.Name,
			Namespace:         set.Namespace,
			UID:               set.UID,
			ResourceVersion:   set.ResourceVersion,
			CreationTimestamp: set.CreationTimestamp,
		},
		Spec: autoscalingv1.ScaleSpec{Replicas: ptr.Deref(set.Spec.Replicas, 0)},
		Status: autoscalingv1.ScaleStatus{
			Replicas: set.Status.Replicas,
			Selector: r.selector(set),
		},
	}
}

// selectorOf finds the unused sandboxes of a set. It is computed until the
// controller has written it, so that an autoscaler that is faster than the
// controller never gets an empty one, which selects everything.
func selectorOf(set *v1alpha1.SandboxSet) string {
	if set.Status.Selector != "" {
		return set.Status.Selector
	}
	return labels.Set{
		v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse,
		v1alpha1.LabelSandboxPool:    set.Name,
	}.String()
}

// scaledObjectInfo turns an update of a scale into an update of its set:
//
//	stored set -> stored scale -> (the client's change) -> wanted scale -> wanted set
//
// The store calls it again with a fresher set when it lost a race, so whatever
// depends on the set is worked out inside.
type scaledObjectInfo struct {
	name   string
	scale  rest.UpdatedObjectInfo
	scales *ScaleREST
}

// resource is that of the scale, as the client names it.
func (i *scaledObjectInfo) resource() schema.GroupResource {
	resource := i.scales.store.DefaultQualifiedResource
	resource.Resource += "/scale"
	return resource
}

// Preconditions are those of the scale: its UID is the set's.
func (i *scaledObjectInfo) Preconditions() *metav1.Preconditions {
	return i.scale.Preconditions()
}

// UpdatedObject returns the stored set at the size that the scale asks for.
func (i *scaledObjectInfo) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	set, ok := old.DeepCopyObject().(*v1alpha1.SandboxSet)
	if !ok {
		return nil, fmt.Errorf("scaling %s: stored object is a %T", i.name, old)
	}
	if set.ResourceVersion == "" {
		return nil, apierrors.NewNotFound(i.resource(), i.name)
	}

	ownership := base.NewScaleOwnership(ctx, set.ManagedFields, replicasPaths)
	stored := i.scales.scaleOf(set)
	var err error
	if stored.ManagedFields, err = ownership.OfScale(); err != nil {
		return nil, fmt.Errorf("reading managed fields of sandboxset %s: %w", i.name, err)
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
	if wanted.UID != "" && wanted.UID != set.UID {
		return nil, apierrors.NewConflict(i.resource(), i.name,
			fmt.Errorf("the UID in the precondition is %s, the UID of the set is %s", wanted.UID, set.UID))
	}

	set.Spec.Replicas = new(wanted.Spec.Replicas)
	if wanted.ResourceVersion != "" { // the store compares it with the one stored
		set.ResourceVersion = wanted.ResourceVersion
	}
	if set.ManagedFields, err = ownership.OfObject(wanted.ManagedFields); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("managed fields of the scale: %v", err))
	}
	return set, nil
}

// validateScale validates the fields of a scale. The field it names is the
// scale's, which is what the client wrote.
func validateScale(scale *autoscalingv1.Scale) field.ErrorList {
	if scale.Spec.Replicas < 0 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0")}
	}
	return nil
}

// AddScaleToScheme registers autoscaling/v1 Scale, in its own version and in the
// internal one, to which patches are converted on their way. For the latter the
// same holds as for the kinds of our own group: one Go type under two versions,
// and only in the scheme of the API server.
func AddScaleToScheme(scheme *runtime.Scheme) {
	internal := schema.GroupVersion{Group: autoscalingv1.GroupName, Version: runtime.APIVersionInternal}
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})
	scheme.AddKnownTypes(internal, &autoscalingv1.Scale{})
}
