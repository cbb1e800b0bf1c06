// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"fmt"

	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// MainStrategy is the strategy of a main resource.
type MainStrategy interface {
	rest.CreateUpdateResetFieldsStrategy
	rest.RESTDeleteStrategy
}

// NewStore completes the store of a kind, with one strategy for all verbs.
func NewStore(store *genericregistry.Store, strategy MainStrategy, options *generic.StoreOptions) (*genericregistry.Store, error) {
	store.CreateStrategy, store.UpdateStrategy, store.DeleteStrategy = strategy, strategy, strategy
	store.ResetFieldsStrategy = strategy
	if err := store.CompleteWithOptions(options); err != nil {
		return nil, fmt.Errorf("completing store of %s: %w", store.DefaultQualifiedResource.Resource, err)
	}
	return store, nil
}

// REST serves a main resource from its store.
type REST struct {
	*genericregistry.Store
	shortName string
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

// ShortNames are the names that kubectl takes for the resource.
func (r *REST) ShortNames() []string { return []string{r.shortName} }

// Categories are the names that kubectl takes for several resources.
func (*REST) Categories() []string { return []string{"sandbox"} }
