// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest is the one place that says which storage serves which resource.
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

// Stores are the generic stores that a binder works with. They are made before
// it, and the store of claims after it.
type Stores struct {
	Sandboxes        *genericregistry.Store
	SandboxSets      *genericregistry.Store
	SandboxTemplates *genericregistry.Store
}

// Judge judges what sandboxes are made from. It is used only once the stores are
// served, so it may read from them.
type Judge interface {
	sandboxset.Judge
	sandboxtemplate.Judge
}

// NewStorage returns the storage of every resource of the group, and the store
// of claims, which binds by what newBinder returns.
func NewStorage(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter, judge Judge,
	newBinder func(Stores) (sandboxclaim.Binder, error)) (map[string]rest.Storage, *genericregistry.Store, error) {
	sandboxes, err := sandbox.NewREST(scheme, optsGetter)
	if err != nil {
		return nil, nil, err
	}
	sets, err := sandboxset.NewREST(scheme, optsGetter, judge)
	if err != nil {
		return nil, nil, err
	}
	templates, err := sandboxtemplate.NewREST(scheme, optsGetter, judge)
	if err != nil {
		return nil, nil, err
	}
	binder, err := newBinder(Stores{
		Sandboxes: sandboxes.Sandbox.Store, SandboxSets: sets.SandboxSet.Store, SandboxTemplates: templates.SandboxTemplate.Store,
	})
	if err != nil {
		return nil, nil, err
	}
	claims, err := sandboxclaim.NewREST(scheme, optsGetter, binder)
	if err != nil {
		return nil, nil, err
	}
	return map[string]rest.Storage{
		"sandboxclaims":        claims.SandboxClaim,
		"sandboxclaims/status": claims.Status,
		"sandboxes":            sandboxes.Sandbox,
		"sandboxes/status":     sandboxes.Status,
		"sandboxsets":          sets.SandboxSet,
		"sandboxsets/scale":    sets.Scale,
		"sandboxsets/status":   sets.Status,
		"sandboxtemplates":     templates.SandboxTemplate,
	}, claims.SandboxClaim.Store, nil
}
