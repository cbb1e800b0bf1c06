// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
)

const resource = "sandboxsets"

func newStorage(t *testing.T, fixture *registrytest.Fixture) sandboxset.Storage {
	t.Helper()
	store, err := sandboxset.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	storage := sandboxset.NewREST(fixture.Scheme, store, nil)
	t.Cleanup(storage.SandboxSet.Destroy)
	return storage
}

func TestConventions(t *testing.T) {
	fixture := registrytest.New(t)
	storage := newStorage(t, fixture)
	registrytest.Conventions{
		Fixture: fixture, Storage: storage.SandboxSet, Store: storage.SandboxSet.Store, Resource: resource,
		Valid:  func() registrytest.Object { return registrytest.NewSandboxSet("") },
		Change: func(obj registrytest.Object) { obj.(*v1alpha1.SandboxSet).Spec.Replicas = ptr.To[int32](9) },
		Break:  func(obj registrytest.Object) { obj.(*v1alpha1.SandboxSet).Spec.Replicas = ptr.To[int32](-1) },
	}.Run(t)
}

func TestNames(t *testing.T) {
	storage := newStorage(t, registrytest.New(t))
	if diff := cmp.Diff([]string{"sbs"}, storage.SandboxSet.ShortNames()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"sandlot"}, storage.SandboxSet.Categories()); diff != "" {
		t.Error(diff)
	}
	if got := storage.SandboxSet.GetSingularName(); got != "sandboxset" {
		t.Errorf("singular is %q", got)
	}
}

func TestStatusUpdate(t *testing.T) {
	storage := newStorage(t, registrytest.New(t))
	set := create(t, storage)

	set.Status.AvailableReplicas = 2
	set.Spec.Replicas = ptr.To[int32](50)
	obj, _, err := storage.Status.Update(registrytest.Context(t, resource, "status"), "a", rest.DefaultUpdatedObjectInfo(set),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := obj.(*v1alpha1.SandboxSet)
	if got.Status.AvailableReplicas != 2 || *got.Spec.Replicas != 2 || got.Generation != 1 {
		t.Errorf("available %d, replicas %d, generation %d: want the status changed and nothing else",
			got.Status.AvailableReplicas, *got.Spec.Replicas, got.Generation)
	}
}

// create stores a set named "a".
func create(t *testing.T, storage sandboxset.Storage) *v1alpha1.SandboxSet {
	t.Helper()
	obj, err := storage.SandboxSet.Create(registrytest.Context(t, resource), registrytest.NewSandboxSet("a"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*v1alpha1.SandboxSet)
}
