// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Storage is what is served for templates, which have no subresources.
type Storage struct {
	SandboxTemplate *REST
}

// REST serves templates.
type REST struct {
	*genericregistry.Store
}

var (
	_ rest.StandardStorage      = &REST{}
	_ rest.ShortNamesProvider   = &REST{}
	_ rest.CategoriesProvider   = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// NewREST returns the storage of templates. judge may be nil.
func NewREST(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter, judge Judge) (Storage, error) {
	strategy := NewStrategy(scheme, judge)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &v1alpha1.SandboxTemplate{} },
		NewListFunc:               func() runtime.Object { return &v1alpha1.SandboxTemplateList{} },
		DefaultQualifiedResource:  v1alpha1.Resource("sandboxtemplates"),
		SingularQualifiedResource: v1alpha1.Resource("sandboxtemplate"),

		CreateStrategy: strategy,
		UpdateStrategy: strategy,
		DeleteStrategy: strategy,

		TableConvertor: NewTableConvertor(clock.RealClock{}),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: optsGetter}); err != nil {
		return Storage{}, fmt.Errorf("completing store of sandboxtemplates: %w", err)
	}
	return Storage{SandboxTemplate: &REST{Store: store}}, nil
}

// ShortNames are the names that kubectl takes for the resource.
func (*REST) ShortNames() []string { return []string{"sbt"} }

// Categories are the names that kubectl takes for several resources.
func (*REST) Categories() []string { return []string{"sandbox"} }
