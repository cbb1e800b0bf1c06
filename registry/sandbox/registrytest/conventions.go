// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	genericregistrytest "k8s.io/apiserver/pkg/registry/generic/testing"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Object is what storages of this group hold.
type Object interface {
	runtime.Object
	metav1.Object
}

// Conventions are what users of Kubernetes expect of any resource: what the tester
// of the generic registry looks at, and what it does not: dry run of each verb,
// generated names, refusal by admission, finalizers, and server-side apply of an
// object that is not there.
type Conventions struct {
	// Fixture is where Storage stores.
	Fixture *Fixture
	// Storage is what is tested, Store the generic store in it, Resource its name.
	Storage  rest.StandardStorage
	Store    *genericregistry.Store
	Resource string
	// Valid makes a new valid object. Its name and namespace are not used.
	Valid func() Object
	// Change makes a valid change of the spec, Break an invalid one.
	Change, Break func(Object)
	// Completes says that a create stores more than it was sent. The tests of the
	// generic tester that compare the two are left out.
	Completes bool
}

// Run runs each convention as a test of its own. The fixture must not be cached:
// the generic tester reads at once what it wrote past the registry.
func (c Conventions) Run(t *testing.T) {
	// First, because it watches from the first revision.
	t.Run("Watch", c.watch)
	if !c.Completes {
		t.Run("Create", func(t *testing.T) {
			broken := c.foo()
			c.Break(broken)
			c.tester(t).TestCreate(c.foo(), broken)
		})
		t.Run("Get", func(t *testing.T) { c.tester(t).TestGet(c.foo()) })
		t.Run("List", func(t *testing.T) { c.tester(t).TestList(c.foo()) })
	}
	for name, test := range map[string]func(*testing.T){
		"Update": func(t *testing.T) {
			c.tester(t).TestUpdate(c.foo(), updateFunc(c.Change), updateFunc(c.Break))
		},
		"Delete":              func(t *testing.T) { c.tester(t).TestDelete(c.foo()) },
		"DryRunCreate":        c.dryRunCreate,
		"DryRunUpdate":        c.dryRunUpdate,
		"DryRunDelete":        c.dryRunDelete,
		"GenerateName":        c.generateName,
		"CreateDenied":        c.createDenied,
		"UpdateDenied":        c.updateDenied,
		"CreateTwice":         c.createTwice,
		"DeleteWithFinalizer": c.deleteWithFinalizer,
		"ApplyOntoNothing":    c.applyOntoNothing,
		"ApplyDryRun":         c.applyDryRun,
		"PutOntoNothing":      c.putOntoNothing,
		"Generation":          c.generation,
	} {
		t.Run(name, test)
	}
}

// tester is the generic tester, with nothing left in its namespace by the test
// before: each of its tests uses the same names.
func (c Conventions) tester(t *testing.T) *genericregistrytest.Tester {
	t.Helper()
	tester := genericregistrytest.New(t, c.Store)
	ctx := genericapirequest.WithNamespace(t.Context(), tester.TestNamespace())
	if _, err := c.Store.DeleteCollection(ctx, rest.ValidateAllObjectFunc, nil, nil); err != nil {
		t.Fatal(err)
	}
	return tester
}

func (c Conventions) watch(t *testing.T) {
	tester := c.tester(t)
	obj := c.foo()
	obj.SetLabels(map[string]string{"a": "b"})
	tester.TestWatch(obj,
		[]labels.Set{{"a": "b"}}, []labels.Set{{"a": "c"}},
		[]fields.Set{{"metadata.name": "foo"}}, []fields.Set{{"metadata.name": "bar"}})
}

// foo is what the generic tester starts from, in its own namespace.
func (c Conventions) foo() Object {
	obj := c.Valid()
	obj.SetName("foo")
	obj.SetNamespace("test")
	return obj
}

func updateFunc(change func(Object)) genericregistrytest.UpdateFunc {
	return func(obj runtime.Object) runtime.Object {
		change(obj.(Object))
		return obj
	}
}

// ErrDenied is what the admission of these tests refuses with.
var ErrDenied = errors.New("denied by the test")

// Deny is the admission of a create that refuses everything.
func Deny(context.Context, runtime.Object) error { return ErrDenied }

// denyUpdate is the admission of an update that refuses everything.
func denyUpdate(context.Context, runtime.Object, runtime.Object) error { return ErrDenied }

func (c Conventions) dryRunCreate(t *testing.T) {
	obj := c.named("dry-create")
	created := must(c.Storage.Create(c.context(t), obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))(t)
	if created.GetUID() == "" || created.GetGeneration() != 1 {
		t.Errorf("answer has UID %q and generation %d, want those of a real create", created.GetUID(), created.GetGeneration())
	}
	c.mustNotExist(t, "dry-create")
}

func (c Conventions) dryRunUpdate(t *testing.T) {
	obj := c.create(t, "dry-update")
	before := c.raw(t, "dry-update")
	c.Change(obj)
	updated, _, err := c.Storage.Update(c.context(t), "dry-update", rest.DefaultUpdatedObjectInfo(obj), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if got := updated.(Object).GetGeneration(); got != 2 {
		t.Errorf("answer has generation %d, want 2", got)
	}
	c.mustBeUnchanged(t, "dry-update", before)
}

func (c Conventions) dryRunDelete(t *testing.T) {
	c.create(t, "dry-delete")
	before := c.raw(t, "dry-delete")
	if _, _, err := c.Storage.Delete(c.context(t), "dry-delete", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	c.mustBeUnchanged(t, "dry-delete", before)
}

func (c Conventions) generateName(t *testing.T) {
	names := map[string]bool{}
	for range 3 {
		obj := c.named("")
		obj.SetGenerateName("gen-")
		created := must(c.Storage.Create(c.context(t), obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}))(t)
		if !strings.HasPrefix(created.GetName(), "gen-") || len(created.GetName()) == len("gen-") {
			t.Errorf("generated name is %q", created.GetName())
		}
		names[created.GetName()] = true
		if c.raw(t, created.GetName()) == nil {
			t.Errorf("%s is not stored", created.GetName())
		}
	}
	if len(names) != 3 {
		t.Errorf("names are not distinct: %v", names)
	}
}

func (c Conventions) createDenied(t *testing.T) {
	_, err := c.Storage.Create(c.context(t), c.named("denied"), Deny, &metav1.CreateOptions{})
	if !errors.Is(err, ErrDenied) {
		t.Errorf("got %v, want the error of admission", err)
	}
	c.mustNotExist(t, "denied")
}

func (c Conventions) updateDenied(t *testing.T) {
	obj := c.create(t, "update-denied")
	before := c.raw(t, "update-denied")
	c.Change(obj)
	_, _, err := c.Storage.Update(c.context(t), "update-denied", rest.DefaultUpdatedObjectInfo(obj), rest.ValidateAllObjectFunc,
		denyUpdate, false, &metav1.UpdateOptions{})
	if !errors.Is(err, ErrDenied) {
		t.Errorf("got %v, want the error of admission", err)
	}
	c.mustBeUnchanged(t, "update-denied", before)
}

func (c Conventions) createTwice(t *testing.T) {
	c.create(t, "twice")
	before := c.raw(t, "twice")
	_, err := c.Storage.Create(c.context(t), c.named("twice"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v, want AlreadyExists", err)
	}
	c.mustBeUnchanged(t, "twice", before)
}

func (c Conventions) deleteWithFinalizer(t *testing.T) {
	const name = "finalized"
	obj := c.named(name)
	obj.SetFinalizers([]string{"example.com/hold"})
	must(c.Storage.Create(c.context(t), obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}))(t)

	_, gone, err := c.Storage.Delete(c.context(t), name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := must(c.Storage.Get(c.context(t), name, &metav1.GetOptions{}))(t)
	if gone || held.GetDeletionTimestamp() == nil {
		t.Fatalf("gone is %v, deletionTimestamp is %v; want the object to wait for its finalizer", gone, held.GetDeletionTimestamp())
	}

	held.SetFinalizers(nil)
	if _, _, err := c.Storage.Update(c.context(t), name, rest.DefaultUpdatedObjectInfo(held), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.mustNotExist(t, name)
}

func (c Conventions) applyOntoNothing(t *testing.T) {
	applied, created := c.apply(t, "applied", &metav1.UpdateOptions{})
	if !created || applied.GetUID() == "" || applied.GetGeneration() != 1 {
		t.Errorf("created is %v, UID %q, generation %d; want an object as from a create", created, applied.GetUID(), applied.GetGeneration())
	}
	if c.raw(t, "applied") == nil {
		t.Error("nothing is stored")
	}
}

func (c Conventions) applyDryRun(t *testing.T) {
	if _, created := c.apply(t, "applied-dry", &metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); !created {
		t.Error("answer does not say created")
	}
	c.mustNotExist(t, "applied-dry")
}

// putOntoNothing: only apply may create through Update.
func (c Conventions) putOntoNothing(t *testing.T) {
	_, _, err := c.Storage.Update(c.context(t), "absent", rest.DefaultUpdatedObjectInfo(c.named("absent")), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
	c.mustNotExist(t, "absent")
}

func (c Conventions) generation(t *testing.T) {
	const name = "generation"
	obj := c.create(t, name)
	obj = c.update(t, obj, func(o Object) { o.SetLabels(map[string]string{"a": "b"}) })
	if got := obj.GetGeneration(); got != 1 {
		t.Errorf("a new label makes generation %d", got)
	}
	obj = c.update(t, obj, c.Change)
	if got := obj.GetGeneration(); got != 2 {
		t.Errorf("a change of the spec makes generation %d", got)
	}
	obj = c.update(t, obj, func(o Object) { o.SetGeneration(7) })
	if got := obj.GetGeneration(); got != 2 {
		t.Errorf("a client made generation %d", got)
	}
}

// apply is the part of server-side apply that the handlers leave to storage: an
// update that may create.
func (c Conventions) apply(t *testing.T, name string, options *metav1.UpdateOptions) (Object, bool) {
	t.Helper()
	obj, created, err := c.Storage.Update(c.context(t), name, rest.DefaultUpdatedObjectInfo(c.named(name)), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, true, options)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(Object), created
}

func (c Conventions) context(t *testing.T) context.Context {
	return Context(t, c.Resource)
}

func (c Conventions) named(name string) Object {
	obj := c.Valid()
	obj.SetNamespace(Namespace)
	obj.SetName(name)
	return obj
}

func (c Conventions) create(t *testing.T, name string) Object {
	t.Helper()
	return must(c.Storage.Create(c.context(t), c.named(name), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}))(t)
}

func (c Conventions) update(t *testing.T, obj Object, change func(Object)) Object {
	t.Helper()
	change(obj)
	updated, _, err := c.Storage.Update(c.context(t), obj.GetName(), rest.DefaultUpdatedObjectInfo(obj), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return updated.(Object)
}

func (c Conventions) raw(t *testing.T, name string) []byte {
	t.Helper()
	return c.Fixture.Raw(t, c.Resource, name)
}

// mustNotExist looks into etcd, because a cache could lag.
func (c Conventions) mustNotExist(t *testing.T, name string) {
	t.Helper()
	if raw := c.raw(t, name); raw != nil {
		t.Errorf("%s is stored: %s", name, raw)
	}
}

func (c Conventions) mustBeUnchanged(t *testing.T, name string, before []byte) {
	t.Helper()
	if before == nil {
		t.Fatalf("%s was never stored", name)
	}
	if after := c.raw(t, name); !bytes.Equal(before, after) {
		t.Errorf("%s changed in etcd\nfrom %s\nto   %s", name, before, after)
	}
}

// must unpacks the results of a storage call: must(call())(t).
func must(obj runtime.Object, err error) func(*testing.T) Object {
	return func(t *testing.T) Object {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := meta.Accessor(obj); err != nil {
			t.Fatal(err)
		}
		return obj.(Object)
	}
}
