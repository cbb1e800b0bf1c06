// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

// noBinder is a binder that is not called.
type noBinder struct{}

func (noBinder) Create(context.Context, *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	return nil, errors.New("called")
}

func (noBinder) Preview(context.Context, *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	return nil, errors.New("called")
}

func (noBinder) Ahead(*v1alpha1.SandboxClaim) (int, bool) { return 0, false }

func (noBinder) Check(context.Context, *v1alpha1.SandboxClaim) error {
	return errors.New("called")
}

func (noBinder) CheckSource(context.Context, *v1alpha1.SandboxClaim) error {
	return errors.New("called")
}

// newStorage returns what a provider serves, and its claims. The stores and the binder of the provider are set here.
func newStorage(t *testing.T, fixture *registrytest.Fixture, provider *Provider) (map[string]rest.Storage, *genericregistry.Store) {
	t.Helper()
	stores, err := NewStores(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	provider.Stores, provider.Binder = stores, noBinder{}
	provider.ClaimLimits, provider.Authorizer = validation.DefaultClaimLimits(), authorizerfactory.NewAlwaysAllowAuthorizer()
	storage, claims, err := provider.NewStorage(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range storage {
			s.Destroy()
		}
	})
	return storage, claims
}

func TestNewStorage(t *testing.T) {
	fixture, provider := registrytest.New(t), &Provider{}
	storage, claims := newStorage(t, fixture, provider)

	want := []string{
		"sandboxclaims", "sandboxclaims/release", "sandboxclaims/runtimeaccess", "sandboxclaims/status", "sandboxes", "sandboxes/proxy", "sandboxes/status",
		"sandboxsets", "sandboxsets/scale", "sandboxsets/status", "sandboxtemplates",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(storage))); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}

	// What reads from the stores must see what is served.
	for resource, got := range map[string]*genericregistry.Store{
		"sandboxes":        storage["sandboxes"].(*accesscheck.REST).Store,
		"sandboxsets":      storage["sandboxsets"].(*base.REST).Store,
		"sandboxtemplates": storage["sandboxtemplates"].(*accesscheck.REST).Store,
	} {
		want := map[string]*genericregistry.Store{
			"sandboxes": provider.Stores.Sandboxes, "sandboxsets": provider.Stores.SandboxSets, "sandboxtemplates": provider.Stores.SandboxTemplates,
		}[resource]
		if got.Storage.Storage != want.Storage.Storage {
			t.Errorf("%s are served from another storage than the store's", resource)
		}
	}
	if claims != storage["sandboxclaims"].(*sandboxclaim.REST).Store {
		t.Error("the claims returned are not the claims served")
	}

	// What a resource takes and gives is known to the scheme in the version served
	// and in the internal one; that it has other names in other groups is not asked here.
	for resource, s := range storage {
		gvks, _, err := fixture.Scheme.ObjectKinds(s.New())
		gvks = slices.DeleteFunc(slices.Clone(gvks), func(gvk schema.GroupVersionKind) bool {
			return gvk.Group == v1alpha1.AgentsGroup || gvk.Group == v1alpha1.ExtensionsGroup
		})
		if err != nil || len(gvks) != 2 {
			t.Errorf("%s has kinds %v, %v", resource, gvks, err)
		}
		if provider, ok := s.(rest.GroupVersionKindProvider); ok && !slices.Contains(gvks, provider.GroupVersionKind(schema.GroupVersion{})) {
			t.Errorf("%s claims to be %s, is %v", resource, provider.GroupVersionKind(schema.GroupVersion{}), gvks)
		}
	}
}
