// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// StatusStrategy is the strategy of the status subresource of kind T: that of the main
// resource, except for what an update may change.
type StatusStrategy[T Object] struct {
	MainStrategy
	// KeepRest gives an update all that it may not change, as it is stored.
	KeepRest func(updated, stored T)
	// Validate validates a change of the status.
	Validate func(updated, stored T) field.ErrorList
	// Kept are the fields of the status that KeepRest keeps.
	Kept []fieldpath.Path
}

// GetResetFields keeps server-side apply from owning what a write of the status
// never changes.
func (s StatusStrategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields(slices.Concat([]fieldpath.Path{fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec")}, s.Kept)...)
}

// PrepareForUpdate lets nothing but the status through.
func (s StatusStrategy[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	s.KeepRest(obj.(T), old.(T))
}

// ValidateUpdate validates a change of the status.
func (s StatusStrategy[T]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.Validate(obj.(T), old.(T))
}

// WarningsOnUpdate has nothing to warn about: the warnings of the main resource are of
// its spec.
func (StatusStrategy[T]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// StatusREST serves GET, PUT and PATCH of a status subresource of any kind. The
// strategy of the kind decides what an update may change.
type StatusREST struct {
	store *genericregistry.Store
}

var (
	_ rest.Patcher             = &StatusREST{}
	_ rest.ResetFieldsStrategy = &StatusREST{}
	_ rest.TableConvertor      = &StatusREST{}
)

// NewStatusREST returns the status subresource of the objects in store, updated by
// strategy. It reads and writes through a shallow copy of the store: same
// storage underneath, other rules.
func NewStatusREST(store *genericregistry.Store, strategy UpdateStrategy) *StatusREST {
	statusStore := *store
	statusStore.UpdateStrategy = strategy
	statusStore.ResetFieldsStrategy = strategy
	return &StatusREST{store: &statusStore}
}

// Store is what the status is read from and written to, with the rules for it.
func (r *StatusREST) Store() *genericregistry.Store { return r.store }

// New returns an empty object of the kind.
func (r *StatusREST) New() runtime.Object { return r.store.New() }

// Destroy does nothing: the storage underneath belongs to the main resource.
func (r *StatusREST) Destroy() {}

// Get reads the whole object, which PATCH and `kubectl get --subresource` need.
func (r *StatusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return getObject(ctx, r.store, name, options)
}

// Update changes the status of an object. Nothing comes into being
// through its status, not even by server-side apply.
func (r *StatusREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, TrackFieldManagers(r.store.UpdateStrategy, objInfo, forceAllowCreate, options), createValidation, updateValidation, false, options)
}

// GetResetFields names the fields that server-side apply does not own here.
func (r *StatusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// ConvertToTable prints the object as the main resource does.
func (r *StatusREST) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, tableOptions)
}
