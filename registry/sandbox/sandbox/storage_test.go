// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
)

const resource = "sandboxes"

func newStorage(t *testing.T, fixture *registrytest.Fixture) sandbox.Storage {
	t.Helper()
	store, err := sandbox.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	return sandbox.NewREST(fixture.Scheme, store, authorizerfactory.NewAlwaysAllowAuthorizer(), nil, nil, nil)
}

func TestConventions(t *testing.T) {
	fixture := registrytest.New(t)
	storage := newStorage(t, fixture)
	registrytest.Conventions{
		Fixture: fixture, Storage: storage.Sandbox, Store: storage.Sandbox.Store, Resource: resource,
		Valid:  func() registrytest.Object { return registrytest.NewSandbox("") },
		Change: func(obj registrytest.Object) { obj.(*v1alpha1.Sandbox).Spec.ShutdownTime = at(time.Hour) },
		Break:  func(obj registrytest.Object) { obj.(*v1alpha1.Sandbox).Spec.Template = nil },
	}.Run(t)
}

func TestNames(t *testing.T) {
	rest := newStorage(t, registrytest.New(t)).Sandbox
	if diff := cmp.Diff([]string{"sbx", "sandbox"}, rest.ShortNames()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"sandlot"}, rest.Categories()); diff != "" {
		t.Error(diff)
	}
	if got := rest.GetSingularName(); got != "sbx" {
		t.Errorf("singular is %q", got)
	}
}

// A list can select by phase, which the watch cache answers from GetAttrs.
func TestListByPhase(t *testing.T) {
	storage := newStorage(t, registrytest.NewCached(t))
	registrytest.WaitReady(t, storage.Sandbox)
	ctx := registrytest.Context(t, resource)
	for _, name := range []string{"a", "b"} {
		if _, err := storage.Sandbox.Create(ctx, registrytest.NewSandbox(name), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	updateStatus(t, storage, "b", func(s *v1alpha1.Sandbox) { s.Status.Phase = v1alpha1.SandboxRunning })

	for phase, want := range map[string][]string{"Pending": {"a"}, "Running": {"b"}, "Failed": nil} {
		list, err := storage.Sandbox.List(ctx, &metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("status.phase", phase)})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, item := range list.(*v1alpha1.SandboxList).Items {
			got = append(got, item.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", phase, diff)
		}
	}
}

func TestStatusUpdate(t *testing.T) {
	storage := newStorage(t, registrytest.New(t))
	ctx := registrytest.Context(t, resource)
	if _, err := storage.Sandbox.Create(ctx, registrytest.NewSandbox("a"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	got := updateStatus(t, storage, "a", func(s *v1alpha1.Sandbox) {
		s.Status.Phase = v1alpha1.SandboxRunning
		s.Spec.ShutdownTime = at(time.Hour)
		s.Labels = map[string]string{"a": "b"}
	})
	if got.Status.Phase != v1alpha1.SandboxRunning || got.Spec.ShutdownTime != nil || got.Labels != nil || got.Generation != 1 {
		t.Errorf("phase %s, shutdownTime %v, labels %v, generation %d: want the phase changed and nothing else",
			got.Status.Phase, got.Spec.ShutdownTime, got.Labels, got.Generation)
	}

	// Even when asked to, a status creates nothing.
	_, _, err := storage.Status.Update(registrytest.Context(t, resource, "status"), "absent", rest.DefaultUpdatedObjectInfo(registrytest.NewSandbox("absent")),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}

// A client that writes what it read a while ago must not undo the claim that has
// come meanwhile.
func TestUpdateWithoutVersion(t *testing.T) {
	storage := newStorage(t, registrytest.New(t))
	ctx := registrytest.Context(t, resource)
	created, err := storage.Sandbox.Create(ctx, registrytest.NewSandbox("a"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale := created.DeepCopyObject().(*v1alpha1.Sandbox)
	stale.ResourceVersion = ""
	for name, storage := range map[string]rest.Updater{"main": storage.Sandbox, "status": storage.Status} {
		_, _, err := storage.Update(ctx, "a", rest.DefaultUpdatedObjectInfo(stale), rest.ValidateAllObjectFunc,
			rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.resourceVersion") {
			t.Errorf("%s: got %v, want an invalid metadata.resourceVersion", name, err)
		}
	}
}

func updateStatus(t *testing.T, storage sandbox.Storage, name string, change func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	t.Helper()
	ctx := registrytest.Context(t, resource, "status")
	obj, err := storage.Status.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed := obj.DeepCopyObject().(*v1alpha1.Sandbox)
	change(changed)
	updated, _, err := storage.Status.Update(ctx, name, rest.DefaultUpdatedObjectInfo(changed), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return updated.(*v1alpha1.Sandbox)
}

// What is stored is the canonical template, with fields that this server does not
// know and numbers beyond what a float holds.
func TestTemplateAtRest(t *testing.T) {
	fixture := registrytest.New(t)
	storage := newStorage(t, fixture)
	obj := registrytest.NewSandbox("a")
	obj.Spec.Template.Raw = []byte(`{"spec": {"newField": 9007199254740993, "containers": [{"name": "main", "image": "busybox:1", "args": ["<&>"]}]}}`)
	if _, err := storage.Sandbox.Create(registrytest.Context(t, resource), obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	var stored struct {
		APIVersion string
		Spec       struct{ Template json.RawMessage }
	}
	if err := json.Unmarshal(fixture.Raw(t, resource, "a"), &stored); err != nil {
		t.Fatal(err)
	}
	if stored.APIVersion != "agents.kruise.io/v1alpha1" {
		t.Errorf("stored as %s", stored.APIVersion)
	}
	const want = `{"spec":{"containers":[{"args":["\u003c\u0026\u003e"],"image":"busybox:1","name":"main"}],"newField":9007199254740993}}`
	if got := string(stored.Spec.Template); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
