// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status serves the status subresource of any kind of the group. What
// such an update may change is said by the strategy of the kind, not here.
package status

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// REST serves GET, PUT and PATCH of a status subresource.
type REST struct {
	store *genericregistry.Store
}

var (
	_ rest.Patcher             = &REST{}
	_ rest.ResetFieldsStrategy = &REST{}
	_ rest.TableConvertor      = &REST{}
)

// NewREST returns the status subresource of the objects in store, updated by
// strategy. It reads and writes through a shallow copy of the store: same
// storage underneath, other rules.
func NewREST(store *genericregistry.Store, strategy rest.UpdateResetFieldsStrategy) *REST {
	statusStore := *store
	statusStore.UpdateStrategy = strategy
	statusStore.ResetFieldsStrategy = strategy
	return &REST{store: &statusStore}
}

// New returns an empty object of the kind.
func (r *REST) New() runtime.Object { return r.store.New() }

// Destroy does nothing: the storage underneath belongs to the main resource.
func (r *REST) Destroy() {}

// Get reads the whole object, which PATCH and `kubectl get --subresource` need.
func (r *REST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update changes the status of an object. forceAllowCreate is dropped: nothing
// comes into being through its status, not even by server-side apply.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// GetResetFields names the fields that server-side apply does not own here.
func (r *REST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// ConvertToTable prints the object as the main resource does.
func (r *REST) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, tableOptions)
}
