// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest puts the storage of the group together: first the stores that need
// nothing but etcd, then, by what reads from them, the resources that are served.
package rest

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxtemplate"
)

// Stores are the stores that the validation of pods and the allocator read from.
type Stores struct {
	Sandboxes        *genericregistry.Store
	SandboxSets      *genericregistry.Store
	SandboxTemplates *genericregistry.Store
}

// PodValidator validates the pods of sets and templates.
type PodValidator interface {
	sandboxset.PodValidator
	sandboxtemplate.PodValidator
}

// NewStores returns the stores.
func NewStores(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter) (*Stores, error) {
	sandboxes, err := sandbox.NewStore(scheme, optsGetter)
	if err != nil {
		return nil, err
	}
	sets, err := sandboxset.NewStore(scheme, optsGetter)
	if err != nil {
		return nil, err
	}
	templates, err := sandboxtemplate.NewStore(scheme, optsGetter)
	if err != nil {
		return nil, err
	}
	return &Stores{Sandboxes: sandboxes, SandboxSets: sets, SandboxTemplates: templates}, nil
}

// NewStorage returns the storage of every resource of the group, and the store of
// claims, which binds by binder, and releases what admitDelete lets be deleted. pods may
// be nil.
func NewStorage(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter, stores *Stores, pods PodValidator,
	binder sandboxclaim.Binder, admitDelete sandboxclaim.AdmitDelete) (map[string]rest.Storage, *genericregistry.Store, error) {
	claims, err := sandboxclaim.NewREST(scheme, optsGetter, binder)
	if err != nil {
		return nil, nil, err
	}
	sandboxes := sandbox.NewREST(scheme, stores.Sandboxes)
	sets := sandboxset.NewREST(scheme, stores.SandboxSets, pods)
	return map[string]rest.Storage{
		"sandboxclaims":         claims.SandboxClaim,
		"sandboxclaims/release": sandboxclaim.NewReleaseREST(claims.SandboxClaim.Store, stores.Sandboxes, admitDelete),
		"sandboxclaims/status":  claims.Status,
		"sandboxes":             sandboxes.Sandbox,
		"sandboxes/status":      sandboxes.Status,
		"sandboxsets":           sets.SandboxSet,
		"sandboxsets/scale":     sets.Scale,
		"sandboxsets/status":    sets.Status,
		"sandboxtemplates":      sandboxtemplate.NewREST(scheme, stores.SandboxTemplates, pods),
	}, claims.SandboxClaim.Store, nil
}
