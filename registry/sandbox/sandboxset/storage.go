// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Storage is what is served for sets.
type Storage struct {
	SandboxSet *REST
	Status     *base.StatusREST
	Scale      *ScaleREST
}

// REST serves sets.
type REST struct {
	*genericregistry.Store
}

var (
	_ rest.StandardStorage      = &REST{}
	_ rest.ShortNamesProvider   = &REST{}
	_ rest.CategoriesProvider   = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// NewStore returns the store of sets. It validates each set by itself: NewREST makes
// what is served.
func NewStore(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter) (*genericregistry.Store, error) {
	strategy := NewStrategy(scheme, nil)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &v1alpha1.SandboxSet{} },
		NewListFunc:               func() runtime.Object { return &v1alpha1.SandboxSetList{} },
		DefaultQualifiedResource:  v1alpha1.Resource("sandboxsets"),
		SingularQualifiedResource: v1alpha1.Resource("sandboxset"),

		CreateStrategy:      strategy,
		UpdateStrategy:      strategy,
		DeleteStrategy:      strategy,
		ResetFieldsStrategy: strategy,

		TableConvertor: NewTableConvertor(clock.RealClock{}),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: optsGetter}); err != nil {
		return nil, fmt.Errorf("completing store of sandboxsets: %w", err)
	}
	return store, nil
}

// NewREST returns what is served from the store of sets: the same storage
// underneath, and pods validated by pods, which may read from the store, or be nil.
func NewREST(scheme *runtime.Scheme, store *genericregistry.Store, pods PodValidator) Storage {
	strategy := NewStrategy(scheme, pods)
	served := *store
	served.CreateStrategy, served.UpdateStrategy = strategy, strategy
	return Storage{
		SandboxSet: &REST{Store: &served},
		Status:     base.NewStatusREST(&served, NewStatusStrategy(strategy)),
		Scale:      newScaleREST(&served, clock.RealClock{}),
	}
}

// ShortNames are the names that kubectl takes for the resource.
func (*REST) ShortNames() []string { return []string{"sbs"} }

// Categories are the names that kubectl takes for several resources.
func (*REST) Categories() []string { return []string{"sandbox"} }
