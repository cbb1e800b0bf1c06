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

// REST serves a main resource. A Checker checks all writes.
type REST struct {
	*base.REST
	checker *Checker
}

var _ rest.StandardStorage = &REST{}

// NewREST returns served with a checker for its writes.
func NewREST(served *base.REST, checker *Checker) *REST { return &REST{REST: served, checker: checker} }

// In returns the resource as another group serves it, with the same checker.
func (r *REST) In(served *base.REST) *REST {
	served.DeletionWarnings = r.DeletionWarnings
	return &REST{REST: served, checker: r.checker}
}

// Create stores an object.
func (r *REST) Create(ctx context.Context, obj runtime.Object, createValidation rest.ValidateObjectFunc,
	options *metav1.CreateOptions) (runtime.Object, error) {
	return r.Store.Create(ctx, obj, r.checker.Create(createValidation), options)
}

// Update changes an object, or, for server-side apply, creates it.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.Store.Update(r.checker.WithRequested(ctx), name, base.TrackFieldManagers(r.UpdateStrategy, objInfo, forceAllowCreate, options), r.checker.Create(createValidation), r.checker.Update(updateValidation, dryrun.IsDryRun(options.DryRun)), forceAllowCreate, options)
}

// Delete deletes an object.
func (r *REST) Delete(ctx context.Context, name string, deleteValidation rest.ValidateObjectFunc,
	options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.REST.Delete(ctx, name, r.checker.Delete(deleteValidation), options)
}

// DeleteCollection deletes the objects that are selected, until one may not be.
func (r *REST) DeleteCollection(ctx context.Context, deleteValidation rest.ValidateObjectFunc,
	options *metav1.DeleteOptions, listOptions *metainternalversion.ListOptions) (runtime.Object, error) {
	return r.REST.DeleteCollection(ctx, r.checker.Delete(deleteValidation), options, listOptions)
}
