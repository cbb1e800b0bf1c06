// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// UpdateStrategy is a strategy of updates of a resource or subresource.
type UpdateStrategy interface {
	rest.UpdateResetFieldsStrategy
	// InVersion converts obj to version. It returns the errors of runtime.Scheme.ConvertToVersion.
	InVersion(obj runtime.Object, version schema.GroupVersion) (runtime.Object, error)
}

// MainStrategy is the strategy of a main resource.
type MainStrategy interface {
	rest.RESTCreateStrategy
	UpdateStrategy
	rest.RESTDeleteStrategy
}

// NewStore completes the store of a kind, with one strategy for all verbs.
func NewStore(store *genericregistry.Store, strategy MainStrategy, options *generic.StoreOptions) (*genericregistry.Store, error) {
	store.CreateStrategy, store.UpdateStrategy, store.DeleteStrategy = strategy, strategy, strategy
	store.ResetFieldsStrategy = strategy
	wrapped := *options
	// The last is the outermost.
	for _, wrap := range []func(storage.Interface) storage.Interface{trackDeletions, withStatusErrors, checkContinue, withListBudget, withProcessor} {
		wrapped.RESTOptions = WrapStorage(wrapped.RESTOptions, wrap)
	}
	if err := store.CompleteWithOptions(&wrapped); err != nil {
		return nil, fmt.Errorf("completing store of %s: %w", store.DefaultQualifiedResource.Resource, err)
	}
	return store, nil
}

// REST serves a main resource from its store.
type REST struct {
	*genericregistry.Store
	// DeletionWarnings computes the warnings of deletions; nil for none.
	DeletionWarnings *DeletionWarnings
	// OfAgentSandbox serves the resource as clients of agent-sandbox expect: it is in no
	// category, where it would be listed twice, and see Watch.
	OfAgentSandbox bool
	shortName      string
	// sharesName: a kind of agent-sandbox has the same singular name.
	sharesName bool
}

var (
	_ rest.StandardStorage      = &REST{}
	_ rest.ShortNamesProvider   = &REST{}
	_ rest.CategoriesProvider   = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// NewREST returns what is served from a store. shortName is what kubectl takes, too.
func NewREST(store *genericregistry.Store, shortName string) *REST {
	return &REST{Store: store, shortName: shortName}
}

// NewSharedREST is NewREST for a kind with the same singular name as a kind of agent-sandbox.
func NewSharedREST(store *genericregistry.Store, shortName string) *REST {
	return &REST{Store: store, shortName: shortName, sharesName: true}
}

// ShortNames are the names that kubectl takes for the resource. A singular that agent-sandbox
// has too is only a short name here: kubectl prefers singulars to short names, so where both
// groups are served it means the kind of agent-sandbox.
func (r *REST) ShortNames() []string {
	if r.sharesName {
		return []string{r.shortName, r.Store.GetSingularName()}
	}
	return []string{r.shortName}
}

// GetSingularName is the singular of the resource. If agent-sandbox has the same singular, it is
// the short name instead. It must not be empty, because kubectl would derive it from the plural.
func (r *REST) GetSingularName() string {
	if r.sharesName {
		return r.shortName
	}
	return r.Store.GetSingularName()
}

// Categories are the names that kubectl takes for several resources. None of them may be
// the name of a kind: kubectl takes a name for a category first.
func (r *REST) Categories() []string {
	if r.OfAgentSandbox {
		return nil
	}
	return []string{"sandlot"}
}

// Get reads an object.
func (r *REST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return getObject(ctx, r.Store, name, options)
}

// Update changes an object, or, for server-side apply, creates it.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.Store.Update(ctx, name, TrackFieldManagers(r.UpdateStrategy, objInfo, forceAllowCreate, options), createValidation, updateValidation, forceAllowCreate, options)
}

// Delete deletes an object, and warns of what that leaves behind.
func (r *REST) Delete(ctx context.Context, name string, deleteValidation rest.ValidateObjectFunc,
	options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if err := waitForObject(ctx, r.Store, name); err != nil {
		return nil, false, err
	}
	noting, warn := r.DeletionWarnings.note(ctx, deleteValidation, options)
	obj, gone, err := r.Store.Delete(ctx, name, noting, options)
	if err == nil {
		warn()
	}
	return obj, gone, err
}

// DeleteCollection deletes the objects that are selected, and warns of what that leaves
// behind, in one warning for all of them.
func (r *REST) DeleteCollection(ctx context.Context, deleteValidation rest.ValidateObjectFunc,
	options *metav1.DeleteOptions, listOptions *metainternalversion.ListOptions) (runtime.Object, error) {
	noting, warn := r.DeletionWarnings.note(ctx, deleteValidation, options)
	deleted, err := r.Store.DeleteCollection(ctx, noting, options, listOptions)
	if err == nil {
		warn()
		_ = WaitForProcessor(ctx) // they are deleted, with or without a slot
	}
	return deleted, err
}
