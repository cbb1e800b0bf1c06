// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/apiserver/etcdquota"
	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	sandboxrest "github.com/sandlot-io/sandlot/registry/sandbox/rest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
)

// Storage is what a server serves from, without the server above it.
type Storage struct {
	Resources map[string]rest.Storage

	allocation *allocation
}

// NewStorage builds the storage of every resource, with the allocation.
func NewStorage(getter generic.RESTOptionsGetter, syncWindow time.Duration) (*Storage, error) {
	stores, err := sandboxrest.NewStores(scheme.Scheme, getter)
	if err != nil {
		return nil, err
	}
	extra := NewConfig().ExtraConfig
	extra.SyncWindow = syncWindow
	a, etcd, runtimes, err := newAllocator(getter, stores, &templateLookup{templates: stores.SandboxTemplates}, nil, nil, podaddress.New(nil),
		etcdquota.NewLimiter(extra.WriteLimits, clock.RealClock{}), &extra)
	if err != nil {
		return nil, err
	}
	provider := sandboxrest.Provider{Stores: stores, Binder: a,
		AdmitDelete: (*admitter)(nil).admitDelete, AdmitAccess: (*admitter)(nil).admitAccess, Runtimes: runtimes, ClaimLimits: extra.ClaimLimits,
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer()}
	resources, claims, err := provider.NewStorage(scheme.Scheme, getter)
	if err != nil {
		return nil, err
	}
	return &Storage{Resources: resources, allocation: newAllocation(a, runtimes, newPoolRuntimes(nil), etcd, stores, claims, resources["sandboxes/proxy"].(*sandbox.ProxyREST), runtime.ContentTypeProtobuf)}, nil
}

// Run runs the allocation, as the server's hook does, until ctx is done.
func (s *Storage) Run(ctx context.Context) error {
	a := s.allocation
	a.feeds.run(ctx, &a.running)
	a.running.Go(func() { a.allocator.Run(ctx) })
	a.running.Go(func() { a.runtimeWorker.Run(ctx) })
	a.running.Wait()
	for _, resource := range s.Resources {
		resource.Destroy()
	}
	return a.etcd.Close()
}

// Ready is the server's readiness check.
func (s *Storage) Ready() error { return s.allocation.ready(nil) }
