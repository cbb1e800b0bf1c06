// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package accesscheck

import (
	"context"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// REST serves a main resource, all writes of which pass a guard.
type REST struct {
	*base.REST
	guard *Guard
}

var _ rest.StandardStorage = &REST{}

// NewREST returns what is served, behind a guard.
func NewREST(served *base.REST, guard *Guard) *REST { return &REST{REST: served, guard: guard} }

// In returns the resource as another group serves it, behind the same guard.
func (r *REST) In(served *base.REST) *REST {
	served.DeletionWarnings = r.DeletionWarnings
	return &REST{REST: served, guard: r.guard}
}

// Create stores an object.
func (r *REST) Create(ctx context.Context, obj runtime.Object, createValidation rest.ValidateObjectFunc,
	options *metav1.CreateOptions) (runtime.Object, error) {
	return r.Store.Create(ctx, obj, r.guard.Create(createValidation), options)
}

// Update changes an object, or, for server-side apply, creates it.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.Store.Update(r.guard.WithRequested(ctx), name, base.TrackFieldManagers(r.UpdateStrategy, objInfo, forceAllowCreate, options), r.guard.Create(createValidation), r.guard.Update(updateValidation, dryrun.IsDryRun(options.DryRun)), forceAllowCreate, options)
}

// Delete deletes an object.
func (r *REST) Delete(ctx context.Context, name string, deleteValidation rest.ValidateObjectFunc,
	options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.REST.Delete(ctx, name, r.guard.Delete(deleteValidation), options)
}

// DeleteCollection deletes the objects that are selected, until one may not be.
func (r *REST) DeleteCollection(ctx context.Context, deleteValidation rest.ValidateObjectFunc,
	options *metav1.DeleteOptions, listOptions *metainternalversion.ListOptions) (runtime.Object, error) {
	return r.REST.DeleteCollection(ctx, r.guard.Delete(deleteValidation), options, listOptions)
}
