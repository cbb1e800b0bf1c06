// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
)

// fixture is one controller with one set, in a namespace of its own.
type fixture struct {
	*testing.T
	api   client.WithWatch
	cache *testCache
	clock *clocktesting.FakePassiveClock
	c     *Controller
	key   types.NamespacedName
	funcs interceptor.Funcs
}

func newFixture(t *testing.T, api client.WithWatch, namespace string) *fixture {
	f := &fixture{
		T: t, api: api,
		clock: clocktesting.NewFakePassiveClock(time.Now()),
		cache: &testCache{seen: map[types.UID]*v1alpha1.Sandbox{}},
		key:   types.NamespacedName{Namespace: namespace, Name: "pool"},
	}
	f.c = New(interceptor.NewClient(api, interceptor.Funcs{
		// Looked up at each call, so that a test can set them when it gets there.
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if f.funcs.Create != nil {
				return f.funcs.Create(ctx, c, o, opts...)
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if f.funcs.Delete != nil {
				return f.funcs.Delete(ctx, c, o, opts...)
			}
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if f.funcs.Patch != nil {
				return f.funcs.Patch(ctx, c, o, patch, opts...)
			}
			return c.Patch(ctx, o, patch, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if f.funcs.Get != nil {
				return f.funcs.Get(ctx, c, k, o, opts...)
			}
			return c.Get(ctx, k, o, opts...)
		},
	}), f.clock, Options{Workers: 2, RefillConcurrency: 8, QuietPeriod: 100 * time.Millisecond, NodeTimeout: DefaultNodeTimeout, Lookup: &templates.Lookup{Cache: api, Server: api}})
	*f.c.indexes = indexes{
		sandboxes: f.cache, holders: testHolders{f}, setUsers: setUsers{f}, sandboxUsers: sandboxUsers{f}, burstSets: burstSetsOf{f}, recycled: recycledOf{},
	}
	return f
}

// testHolders shows the SandboxTemplates as the server has them.
type testHolders struct{ f *fixture }

func (h testHolders) ControlledBy(uid types.UID) ([]*v1alpha1.SandboxTemplate, error) {
	list := &v1alpha1.SandboxTemplateList{}
	if err := h.f.api.List(h.f.Context(), list, client.InNamespace(h.f.key.Namespace)); err != nil {
		return nil, err
	}
	var all []*v1alpha1.SandboxTemplate
	for i := range list.Items {
		if owner := metav1.GetControllerOfNoCopy(&list.Items[i]); owner != nil && owner.UID == uid {
			all = append(all, &list.Items[i])
		}
	}
	return all, nil
}

// setUsers and sandboxUsers show what refers to a template straight, as the server has
// it.
type (
	setUsers     struct{ f *fixture }
	sandboxUsers struct{ f *fixture }
)

func (u setUsers) UsersOf(_, namespace, name string) ([]client.Object, error) {
	list := &v1alpha1.SandboxSetList{}
	err := u.f.api.List(u.f.Context(), list, client.InNamespace(namespace))
	var found []client.Object
	for i := range list.Items {
		if ref := list.Items[i].Spec.TemplateRef; ref != nil && ref.Name == name {
			found = append(found, &list.Items[i])
		}
	}
	return found, err
}

func (u sandboxUsers) UsersOf(_, namespace, name string) ([]client.Object, error) {
	list := &v1alpha1.SandboxList{}
	err := u.f.api.List(u.f.Context(), list, client.InNamespace(namespace))
	var found []client.Object
	for i := range list.Items {
		if ref := list.Items[i].Spec.TemplateRef; ref != nil && ref.Name == name {
			found = append(found, &list.Items[i])
		}
	}
	return found, err
}

// burstSetsOf shows the sets with a burst, as the server has them.
type burstSetsOf struct{ f *fixture }

func (s burstSetsOf) ByName(namespace, name string) ([]*v1alpha1.SandboxSet, error) {
	list := &v1alpha1.SandboxSetList{}
	if err := s.f.api.List(s.f.Context(), list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var all []*v1alpha1.SandboxSet
	for i := range list.Items {
		keys, err := burstKeys(&list.Items[i])
		if err != nil {
			return nil, err
		}
		if slices.Contains(keys, namespace+"/"+name) {
			all = append(all, &list.Items[i])
		}
	}
	return all, nil
}

// recycledOf has no sandboxes that are being recycled.
type recycledOf struct{}

func (recycledOf) OfPool(_, _ string) ([]*v1alpha1.Sandbox, error) { return nil, nil }

// testCache shows what was delivered to it.
type testCache struct {
	mu   sync.Mutex
	seen map[types.UID]*v1alpha1.Sandbox
	// read, if set, runs right after each read.
	read func()
}

func (c *testCache) ControlledBy(uid types.UID) ([]*v1alpha1.Sandbox, error) {
	if c.read != nil {
		defer c.read()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*v1alpha1.Sandbox
	for _, sandbox := range c.seen {
		if owner := metav1.GetControllerOfNoCopy(sandbox); owner != nil && owner.UID == uid {
			all = append(all, sandbox)
		}
	}
	return all, nil
}

// noQueue stands for the queue that events fill.
type noQueue struct{ queue.Interface }

func (noQueue) Add(reconcile.Request)                     {}
func (noQueue) AddAfter(reconcile.Request, time.Duration) {}

// deliver brings a sandbox in the cache up to date, as an informer does: first
// the cache, then the event.
func (f *fixture) deliver(uid types.UID, now *v1alpha1.Sandbox) {
	f.cache.mu.Lock()
	before := f.cache.seen[uid]
	if now == nil {
		delete(f.cache.seen, uid)
	} else {
		f.cache.seen[uid] = now
	}
	f.cache.mu.Unlock()
	switch {
	case before == nil && now != nil:
		f.c.watches.sandboxCreated(now, noQueue{})
	case before != nil && now != nil:
		f.c.watches.sandboxUpdated(before, now, noQueue{})
	case before != nil:
		f.c.watches.sandboxDeleted(before, noQueue{})
	}
}

// catchUp delivers the changes that keep lets through.
func (f *fixture) catchUp(keep func() bool) {
	f.Helper()
	now := map[types.UID]*v1alpha1.Sandbox{}
	for _, sandbox := range f.all() {
		now[sandbox.UID] = sandbox
		seen := f.cache.seen[sandbox.UID]
		if (seen == nil || seen.ResourceVersion != sandbox.ResourceVersion) && keep() {
			f.deliver(sandbox.UID, sandbox)
		}
	}
	for uid := range f.cache.seen {
		if now[uid] == nil && keep() {
			f.deliver(uid, nil)
		}
	}
}

func (f *fixture) sync() {
	f.Helper()
	f.catchUp(func() bool { return true })
}

// state calls a function with what the controller remembers of the set.
func (f *fixture) state(look func(*setState)) { f.c.states.withState(f.key, look) }

func (f *fixture) createSet(replicas int32) {
	f.Helper()
	set := makeSet(replicas)
	set.ObjectMeta = metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name}
	if err := f.api.Create(f.Context(), set); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) set() *v1alpha1.SandboxSet {
	f.Helper()
	set := &v1alpha1.SandboxSet{}
	if err := f.api.Get(f.Context(), f.key, set); err != nil {
		f.Fatal(err)
	}
	return set
}

func (f *fixture) changeSet(change func(*v1alpha1.SandboxSet)) {
	f.Helper()
	set := f.set()
	change(set)
	if err := f.api.Update(f.Context(), set); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) all() []*v1alpha1.Sandbox {
	f.Helper()
	list := &v1alpha1.SandboxList{}
	if err := f.api.List(f.Context(), list, client.InNamespace(f.key.Namespace)); err != nil {
		f.Fatal(err)
	}
	var all []*v1alpha1.Sandbox
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

// pooled are the sandboxes that the set owns.
func (f *fixture) pooled() []*v1alpha1.Sandbox {
	f.Helper()
	var pooled []*v1alpha1.Sandbox
	for _, sandbox := range f.all() {
		if v1alpha1.IsInPool(sandbox) {
			pooled = append(pooled, sandbox)
		}
	}
	return pooled
}

// start makes sandboxes available that have been so for long enough to prove that they keep running.
func (f *fixture) start(sandboxes ...*v1alpha1.Sandbox) {
	f.Helper()
	f.startAt(f.clock.Now().Add(-provenAfter), sandboxes...)
}

// startAt makes sandboxes available since a time.
func (f *fixture) startAt(since time.Time, sandboxes ...*v1alpha1.Sandbox) {
	f.Helper()
	for _, sandbox := range sandboxes {
		builder{sandbox}.phase(v1alpha1.SandboxRunning).ip("127.1.1.1").ready(true)
		sandbox.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since)
		if err := f.api.Status().Update(f.Context(), sandbox); err != nil {
			f.Fatal(err)
		}
	}
}

// claim does to a sandbox what a claim does.
func (f *fixture) claim(sandbox *v1alpha1.Sandbox) {
	f.Helper()
	claimed := sandbox.DeepCopy()
	claimed.OwnerReferences = nil
	claimed.Labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedTrue
	claimed.Annotations = map[string]string{v1alpha1.AnnotationLock: "l", v1alpha1.AnnotationOwner: "c"}
	if err := f.api.Update(f.Context(), claimed); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) pass(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }

func (f *fixture) request() reconcile.Request { return reconcile.Request{NamespacedName: f.key} }

// wantRetry reconciles, which has to fail.
func (f *fixture) wantRetry() {
	f.Helper()
	if _, err := f.c.Reconcile(f.Context(), f.request()); err == nil {
		f.Error("no error, so no retry")
	}
}

// fill reconciles until the pool is full and available.
func (f *fixture) fill() {
	f.Helper()
	f.reconcile()
	f.start(f.pooled()...)
	f.sync()
	f.reconcile()
}

// refuseTemplates makes creates of SandboxTemplates fail.
func (f *fixture) refuseTemplates(err error) {
	f.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*v1alpha1.SandboxTemplate); ok {
			return err
		}
		return c.Create(ctx, o, opts...)
	}
}

func (f *fixture) reconcile() reconcile.Result {
	f.Helper()
	result, err := f.c.Reconcile(f.Context(), f.request())
	if err != nil {
		f.Fatal(err)
	}
	return result
}

func (f *fixture) wantPooled(want int) []*v1alpha1.Sandbox {
	f.Helper()
	pooled := f.pooled()
	if len(pooled) != want {
		f.Fatalf("%d sandboxes in the pool, want %d", len(pooled), want)
	}
	return pooled
}

func (f *fixture) wantStatus(replicas, available, updated, updatedAvailable int32) {
	f.Helper()
	type counts struct{ replicas, available, updated, updatedAvailable int32 }
	s := f.set().Status
	got := counts{s.Replicas, s.AvailableReplicas, s.UpdatedReplicas, s.UpdatedAvailableReplicas}
	if want := (counts{replicas, available, updated, updatedAvailable}); got != want {
		f.Fatalf("status %+v, want %+v", got, want)
	}
}

// wantConditions compares the conditions of the set, sorted by type, except for
// ScalingLimited, see TestScalingLimited.
func (f *fixture) wantConditions(want ...string) {
	f.Helper()
	var got []string
	for _, c := range f.set().Status.Conditions {
		if c.Type == v1alpha1.SetConditionScalingLimited {
			continue
		}
		got = append(got, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("conditions (-want +got):\n%s", diff)
	}
}
