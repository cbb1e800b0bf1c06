// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentsandbox serves the objects of agents.kruise.io in the words of
// kubernetes-sigs/agent-sandbox: the same stores, with other names, columns, defaults and
// rules of what an update may leave out.
package agentsandbox

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	extensions "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/registry/agentsandbox/conversion"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
)

// Provider makes the storage of the groups of agent-sandbox.
type Provider struct {
	Scheme *runtime.Scheme
	// Stored is what is served in agents.kruise.io, by resource and subresource.
	Stored map[string]rest.Storage
	// Templates finds the templates that sandboxes refer to.
	Templates podtemplate.Lookup
	// CachedTemplates does so in memory, for lists and watches.
	CachedTemplates podtemplate.Lookup
	// StrictClaims refuses claims that are stored with a condition otherwise.
	StrictClaims bool
}

// NewStorage returns the storage of each resource by group, of which ServedIn returns that of
// a version. It fails if what is stored is
// not what the package sandbox/rest makes.
func (p Provider) NewStorage() (map[string]map[string]rest.Storage, error) {
	inExtensions, inAgents := map[string]rest.Storage{}, map[string]rest.Storage{}
	for _, add := range []func() error{
		func() error { return p.addClaims(inExtensions) },
		func() error { return p.addTemplates(inExtensions) },
		func() error { return p.addWarmPools(inExtensions) },
		func() error { return p.addSandboxes(inAgents) },
	} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	return map[string]map[string]rest.Storage{v1alpha1.ExtensionsGroup: inExtensions, v1alpha1.AgentsGroup: inAgents}, nil
}

func (p Provider) addClaims(to map[string]rest.Storage) error {
	stored, err := storedAs[*sandboxclaim.REST](p.Stored, "sandboxclaims")
	if err != nil {
		return err
	}
	o := conversion.Options{Scheme: p.Scheme, Words: claimWords, Table: newClaimTable(clock.RealClock{})}
	served, err := serve(stored.REST, o)
	if err != nil {
		return err
	}
	claims := stored.In(served)
	claims.Strict = p.StrictClaims
	to["sandboxclaims"] = claims
	return p.addStatus(to, "sandboxclaims", "sandboxclaims", o)
}

func (p Provider) addTemplates(to map[string]rest.Storage) error {
	stored, err := storedAs[*accesscheck.REST](p.Stored, "sandboxtemplates")
	if err != nil {
		return err
	}
	served, err := serve(stored.REST, conversion.Options{Scheme: p.Scheme, Words: templateWords, Table: newTemplateTable(clock.RealClock{})})
	if err != nil {
		return err
	}
	to["sandboxtemplates"] = stored.In(served)
	return nil
}

func (p Provider) addWarmPools(to map[string]rest.Storage) error {
	stored, err := storedAs[*base.REST](p.Stored, "sandboxsets")
	if err != nil {
		return err
	}
	scale, err := storedAs[*sandboxset.ScaleREST](p.Stored, "sandboxsets/scale")
	if err != nil {
		return err
	}
	o := conversion.Options{Scheme: p.Scheme, Words: warmPoolWords, Table: newWarmPoolTable(clock.RealClock{}), Check: checkWarmPool}
	served, err := serve(stored, o)
	if err != nil {
		return err
	}
	served.DeletionWarnings = stored.DeletionWarnings
	to["sandboxwarmpools"] = warmPoolREST{served}
	to["sandboxwarmpools/scale"] = &sandboxset.ScaleREST{TableConvertor: scale.TableConvertor, Store: served.Store, Scaled: sandboxset.Scaled(warmPoolSelector)}
	return p.addStatus(to, "sandboxwarmpools", "sandboxsets", o)
}

// warmPoolREST names the kind of lists: the one of the stored type has another name than that
// of the kind here, by which the generic server goes.
type warmPoolREST struct{ *base.REST }

// NewList returns an empty list as it is served.
func (warmPoolREST) NewList() runtime.Object { return &extensions.SandboxWarmPoolList{} }

func (p Provider) addSandboxes(to map[string]rest.Storage) error {
	stored, err := storedAs[*accesscheck.REST](p.Stored, "sandboxes")
	if err != nil {
		return err
	}
	o := conversion.Options{Scheme: p.Scheme, Words: sandboxWords, Table: newSandboxTable(clock.RealClock{}, p.Scheme)}
	served, err := serve(stored.REST, o)
	if err != nil {
		return err
	}
	templates := newPodTemplates(p.Templates, p.CachedTemplates)
	to["sandboxes"] = &sandboxREST{stored.In(served), templates}
	scale, err := storedAs[*sandboxset.ScaleREST](p.Stored, "sandboxsets/scale")
	if err != nil {
		return err
	}
	to[sandboxScale] = &base.ScaleREST[*v1alpha1.Sandbox]{TableConvertor: scale.TableConvertor, Store: served.Store, Scaled: scaledSandbox}
	status, err := p.status("sandboxes", o)
	if err != nil {
		return err
	}
	to["sandboxes/status"] = &sandboxStatusREST{status, templates}
	return nil
}

func (p Provider) addStatus(to map[string]rest.Storage, resource, stored string, o conversion.Options) error {
	served, err := p.status(stored, o)
	if err != nil {
		return err
	}
	to[resource+"/status"] = served
	return nil
}

// status returns the status subresource of what is stored as a resource.
func (p Provider) status(stored string, o conversion.Options) (*base.StatusREST, error) {
	status, err := storedAs[*base.StatusREST](p.Stored, stored+"/status")
	if err != nil {
		return nil, err
	}
	o.Check = nil // it is of the spec
	return conversion.NewStatusREST(status, o)
}

// serve returns a main resource as the second group serves it.
func serve(stored *base.REST, o conversion.Options) (*base.REST, error) {
	store, err := conversion.NewStore(stored.Store, o)
	if err != nil {
		return nil, err
	}
	served := base.NewREST(store, o.Words.ShortName)
	served.OfAgentSandbox = true
	return served, nil
}

func storedAs[T any](stored map[string]rest.Storage, resource string) (T, error) {
	storage, ok := stored[resource].(T)
	if !ok {
		return storage, fmt.Errorf("%s is a %T, which cannot be served in a second group", resource, stored[resource])
	}
	return storage, nil
}
