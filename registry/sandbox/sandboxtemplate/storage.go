// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// NewStore returns the store of templates. It validates each template by itself:
// NewREST makes what is served.
func NewStore(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter) (*genericregistry.Store, error) {
	return base.NewStore(&genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &v1alpha1.SandboxTemplate{} },
		NewListFunc:               func() runtime.Object { return &v1alpha1.SandboxTemplateList{} },
		DefaultQualifiedResource:  v1alpha1.Resource("sandboxtemplates"),
		SingularQualifiedResource: v1alpha1.Resource("sandboxtemplate"),
		TableConvertor:            NewTableConvertor(clock.RealClock{}),
	}, NewStrategy(scheme, nil), &generic.StoreOptions{RESTOptions: optsGetter})
}

// NewREST returns what is served from the store of templates: the same storage
// underneath, and pods validated by pods, which may read from the store, or be nil.
func NewREST(scheme *runtime.Scheme, store *genericregistry.Store, pods PodValidator) *base.REST {
	strategy := NewStrategy(scheme, pods)
	served := *store
	served.CreateStrategy, served.UpdateStrategy = strategy, strategy
	return base.NewREST(&served, "sbt")
}
