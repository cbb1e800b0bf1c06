// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxtemplate"
)

func noOwners(context.Context, string, *metav1.OwnerReference) (metav1.Object, error) {
	return nil, nil
}

func newStorage(t *testing.T, fixture *registrytest.Fixture) *accesscheck.REST {
	t.Helper()
	store, err := sandboxtemplate.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	return sandboxtemplate.NewREST(fixture.Scheme, store, nil, authorizerfactory.NewAlwaysAllowAuthorizer(), noOwners)
}

func TestConventions(t *testing.T) {
	fixture := registrytest.New(t)
	storage := newStorage(t, fixture)
	registrytest.Conventions{
		Fixture: fixture, Storage: storage, Store: storage.Store, Resource: "sandboxtemplates",
		Valid: func() registrytest.Object { return registrytest.NewSandboxTemplate("") },
		Change: func(obj registrytest.Object) {
			obj.(*v1alpha1.SandboxTemplate).Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}`)
		},
		Break: func(obj registrytest.Object) { obj.(*v1alpha1.SandboxTemplate).Spec.Template = nil },
	}.Run(t)
}

func TestNames(t *testing.T) {
	storage := newStorage(t, registrytest.New(t))
	if diff := cmp.Diff([]string{"sbt", "sandboxtemplate"}, storage.ShortNames()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"sandlot"}, storage.Categories()); diff != "" {
		t.Error(diff)
	}
	if got := storage.GetSingularName(); got != "sbt" {
		t.Errorf("singular is %q", got)
	}
}
