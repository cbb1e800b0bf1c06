// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Storage is what is served for sets.
type Storage struct {
	SandboxSet *base.REST
	Status     *base.StatusREST
	Scale      *ScaleREST
}

// NewStore returns the store of sets. It validates each set by itself: NewREST makes
// what is served.
func NewStore(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter) (*genericregistry.Store, error) {
	return base.NewStore(&genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &v1alpha1.SandboxSet{} },
		NewListFunc:               func() runtime.Object { return &v1alpha1.SandboxSetList{} },
		DefaultQualifiedResource:  v1alpha1.Resource("sandboxsets"),
		SingularQualifiedResource: v1alpha1.Resource("sandboxset"),
		TableConvertor:            NewTableConvertor(clock.RealClock{}),
	}, NewStrategy(scheme, nil), &generic.StoreOptions{RESTOptions: optsGetter})
}

// NewREST returns what is served from the store of sets: the same storage
// underneath, and pods validated by pods, which may read from the store, or be nil.
func NewREST(scheme *runtime.Scheme, store *genericregistry.Store, pods PodValidator) Storage {
	strategy := NewStrategy(scheme, pods)
	served := *store
	served.CreateStrategy, served.UpdateStrategy = strategy, strategy
	return Storage{
		SandboxSet: base.NewREST(&served, "sbs"),
		Status:     base.NewStatusREST(&served, NewStatusStrategy(strategy)),
		Scale:      newScaleREST(&served, clock.RealClock{}),
	}
}
