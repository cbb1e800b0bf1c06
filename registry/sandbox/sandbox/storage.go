// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/status"
	"github.com/sandlot-io/sandlot/registry/sandbox/txnstorage"
)

// Storage is what is served for sandboxes.
type Storage struct {
	Sandbox *REST
	Status  *status.REST
}

// REST serves sandboxes.
type REST struct {
	*genericregistry.Store
}

var (
	_ rest.StandardStorage      = &REST{}
	_ rest.ShortNamesProvider   = &REST{}
	_ rest.CategoriesProvider   = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// NewREST returns the storage of sandboxes and their status.
func NewREST(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter) (Storage, error) {
	strategy := NewStrategy(scheme, clock.RealClock{})
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &v1alpha1.Sandbox{} },
		NewListFunc:               func() runtime.Object { return &v1alpha1.SandboxList{} },
		PredicateFunc:             match,
		DefaultQualifiedResource:  v1alpha1.Resource("sandboxes"),
		SingularQualifiedResource: v1alpha1.Resource("sandbox"),

		CreateStrategy:      strategy,
		UpdateStrategy:      strategy,
		DeleteStrategy:      strategy,
		ResetFieldsStrategy: strategy,

		TableConvertor: NewTableConvertor(clock.RealClock{}),
	}
	options := &generic.StoreOptions{RESTOptions: txnstorage.Options(optsGetter), AttrFunc: GetAttrs, Indexers: indexers()}
	if err := store.CompleteWithOptions(options); err != nil {
		return Storage{}, fmt.Errorf("completing store of sandboxes: %w", err)
	}
	return Storage{
		Sandbox: &REST{Store: store},
		Status:  status.NewREST(store, NewStatusStrategy(strategy)),
	}, nil
}

// indexedLabels are those by which clients and the allocator look up the
// sandboxes of one claim or pool among very many.
var indexedLabels = []string{v1alpha1.LabelClaimName, v1alpha1.LabelSandboxPool}

// match lets the watch cache find what a selector selects by an index.
func match(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: GetAttrs, IndexLabels: indexedLabels}
}

func indexers() *cache.Indexers {
	all := cache.Indexers{}
	for _, label := range indexedLabels {
		all[storage.LabelIndex(label)] = func(obj any) ([]string, error) {
			sb, ok := obj.(*v1alpha1.Sandbox)
			if !ok {
				return nil, fmt.Errorf("%T is not a Sandbox", obj)
			}
			if value, ok := sb.Labels[label]; ok {
				return []string{value}, nil
			}
			return nil, nil
		}
	}
	return &all
}

// ShortNames are the names that kubectl takes for the resource.
func (*REST) ShortNames() []string { return []string{"sbx"} }

// Categories are the names that kubectl takes for several resources.
func (*REST) Categories() []string { return []string{"sandbox"} }
