// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package revisioncache_test

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
	"github.com/sandlot-io/sandlot/pkg/store/revisioncache"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
)

// plain shows what the tests of this package are for: with it, they run on the
// storage of the generic registry, and most of them fail.
var plain = flag.Bool("plain", false, "test the generic registry's own storage with a watch cache instead")

const (
	resource = "sandboxes"
	// label tells the transactions apart.
	label = "round"
	// patience ends a test that would otherwise wait for ever.
	patience = 2 * time.Minute
)

// pool is sandboxes in an etcd: written by transactions, read through the
// storage of this package.
type pool struct {
	*genericregistry.Store
	fixture  *registrytest.Fixture
	gate     *gate
	client   *etcdtxn.Client
	resource *etcdtxn.Resource

	mu sync.Mutex
	at map[string]int64 // where each object is
}

func newPool(t *testing.T) *pool {
	t.Helper()
	return newPoolOn(t, registrytest.NewCached(t))
}

// newPoolOn returns another storage on an etcd, like that of another server.
func newPoolOn(t *testing.T, fixture *registrytest.Fixture) *pool {
	t.Helper()
	var getter generic.RESTOptionsGetter = fixture
	if !*plain {
		getter = revisioncache.Options(fixture)
	}
	strategy := sandbox.NewStrategy(fixture.Scheme, clock.RealClock{})
	p := &pool{
		fixture: fixture,
		gate:    &gate{},
		client:  etcdtxn.NewClient(fixture.Etcd()),
		at:      map[string]int64{},
		Store: &genericregistry.Store{
			NewFunc:                   func() runtime.Object { return &v1alpha1.Sandbox{} },
			NewListFunc:               func() runtime.Object { return &v1alpha1.SandboxList{} },
			DefaultQualifiedResource:  v1alpha1.Resource(resource),
			SingularQualifiedResource: v1alpha1.Resource("sandbox"),
			CreateStrategy:            strategy,
			UpdateStrategy:            strategy,
			DeleteStrategy:            strategy,
			TableConvertor:            rest.NewDefaultTableConvertor(v1alpha1.Resource(resource)),
		},
	}
	if err := p.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter, AttrFunc: p.gate.attrs}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Destroy)
	options, err := fixture.GetRESTOptions(v1alpha1.Resource(resource), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.resource = etcdtxn.NewResource(options.StorageConfig, options.ResourcePrefix)
	registrytest.WaitReady(t, p.Store)
	return p
}

// gate holds the watch cache in the middle of a revision: the cache asks for the
// attributes of each object that it takes in, and waits for the answer.
type gate struct {
	mu       sync.Mutex
	armed    bool
	pass     int            // how many objects of a revision may pass
	passed   map[string]int // by resourceVersion
	held     chan struct{}  // closed when the cache waits
	released chan struct{}  // closed when it may continue
}

// hold stops the cache once it has taken in k objects of a revision, and returns
// what is closed when it stands there. All that was written before must have
// reached the cache.
func (g *gate) hold(k int) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed, g.pass, g.passed = true, k, map[string]int{}
	g.held, g.released = make(chan struct{}), make(chan struct{})
	return g.held
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.armed {
		g.armed = false
		close(g.released)
	}
}

func (g *gate) attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	if sb, ok := obj.(*v1alpha1.Sandbox); ok {
		if wait := g.admit(sb.ResourceVersion); wait != nil {
			<-wait
		}
	}
	return sandbox.GetAttrs(obj)
}

// admit counts an object, and returns what it must wait for, if it must.
func (g *gate) admit(version string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.armed {
		return nil
	}
	g.passed[version]++
	switch n := g.passed[version]; {
	case n <= g.pass:
		return nil
	case n == g.pass+1:
		close(g.held)
	}
	return g.released
}

// names returns n names, in order.
func names(n int) []string {
	all := make([]string, 0, n)
	for i := range n {
		all = append(all, fmt.Sprintf("a-%03d", i))
	}
	return all
}

// write puts objects into etcd in one transaction, labelled with the round, and
// returns its revision. Objects that are there already are updated.
func (p *pool) write(t *testing.T, round string, names ...string) uint64 {
	t.Helper()
	revision, err := p.commit(t.Context(), round, names...)
	if err != nil {
		t.Fatalf("writing %s: %v", round, err)
	}
	return revision
}

// commit is write for other goroutines than the test's. No two may write the same
// object.
func (p *pool) commit(ctx context.Context, round string, names ...string) (uint64, error) {
	txn := p.client.Txn()
	written := make([]*v1alpha1.Sandbox, 0, len(names))
	for _, name := range names {
		sb := registrytest.NewSandbox(name)
		sb.Labels = map[string]string{label: round}
		if err := p.add(ctx, txn, sb); err != nil {
			return 0, err
		}
		written = append(written, sb)
	}
	if err := txn.Commit(ctx); err != nil {
		return 0, err
	}
	revision, err := storage.APIObjectVersioner{}.ObjectResourceVersion(written[0])
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		p.at[name] = int64(revision)
	}
	return revision, err
}

func (p *pool) add(ctx context.Context, txn *etcdtxn.Txn, sb *v1alpha1.Sandbox) error {
	p.mu.Lock()
	at, exists := p.at[sb.Name]
	p.mu.Unlock()
	key := p.resource.Key(sb.Namespace, sb.Name)
	if exists {
		return txn.Update(ctx, p.resource, key, sb, at)
	}
	return txn.Create(ctx, p.resource, key, sb)
}

// remove deletes an object.
func (p *pool) remove(t *testing.T, name string) {
	t.Helper()
	ctx := genericapirequest.WithNamespace(t.Context(), registrytest.Namespace)
	if _, _, err := p.Delete(ctx, name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatalf("deleting %s: %v", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.at, name)
}

// writeElse writes something that is no sandbox.
func (p *pool) writeElse(t *testing.T) {
	t.Helper()
	if _, err := p.fixture.Etcd().Put(t.Context(), "/elsewhere", "x"); err != nil {
		t.Fatal(err)
	}
}

// version is the revision that an object, or a list, is at.
func version(t *testing.T, obj runtime.Object) uint64 {
	t.Helper()
	if list, err := meta.ListAccessor(obj); err == nil {
		return parse(t, list.GetResourceVersion())
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, accessor.GetResourceVersion())
}

func parseVersion(version string) (uint64, error) { return strconv.ParseUint(version, 10, 64) }

func parse(t *testing.T, version string) uint64 {
	t.Helper()
	v, err := parseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func format(version uint64) string { return strconv.FormatUint(version, 10) }

func selector(round string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{label: round})
}

// view is what a client knows: which object is at which revision.
type view map[string]uint64

// at returns the view in which all names are at a revision.
func at(revision uint64, names ...string) view {
	v := view{}
	for _, name := range names {
		v[name] = revision
	}
	return v
}

func viewOf(t *testing.T, list *v1alpha1.SandboxList) view {
	t.Helper()
	v := view{}
	for i := range list.Items {
		v[list.Items[i].Name] = version(t, &list.Items[i])
	}
	return v
}

// list reads as a client does.
func (p *pool) list(ctx context.Context, options *metainternalversion.ListOptions) (*v1alpha1.SandboxList, error) {
	obj, err := p.List(genericapirequest.WithNamespace(ctx, registrytest.Namespace), options)
	if err != nil {
		return nil, err
	}
	return obj.(*v1alpha1.SandboxList), nil
}

func (p *pool) mustList(t *testing.T, options *metainternalversion.ListOptions) *v1alpha1.SandboxList {
	t.Helper()
	list, err := p.list(t.Context(), options)
	if err != nil {
		t.Fatalf("listing: %v", err)
	}
	return list
}

// now is the state as of now, and waits until the cache has come to it.
func (p *pool) now(t *testing.T) *v1alpha1.SandboxList {
	t.Helper()
	return p.mustList(t, &metainternalversion.ListOptions{})
}

// watching is a client that watches. It stops when the test ends.
type watching struct {
	watch.Interface
	view view
	// events counts the events by object; bookmark is the version of the last one.
	events   map[string]int
	bookmark uint64
}

// watchWith is Watch as a client in the namespace asks for it.
func (p *pool) watchWith(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	return p.Watch(genericapirequest.WithNamespace(ctx, registrytest.Namespace), options)
}

func (p *pool) watching(t *testing.T, options *metainternalversion.ListOptions) (*watching, error) {
	t.Helper()
	w, err := p.watchWith(t.Context(), options)
	if err != nil {
		return nil, err
	}
	t.Cleanup(w.Stop)
	return &watching{Interface: w, view: view{}, events: map[string]int{}}, nil
}

func (p *pool) mustWatch(t *testing.T, options *metainternalversion.ListOptions) *watching {
	t.Helper()
	w, err := p.watching(t, options)
	if err != nil {
		t.Fatalf("watching: %v", err)
	}
	return w
}

// next takes in one event.
func (w *watching) next(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case event, ok := <-w.ResultChan():
		if !ok {
			t.Fatalf("the watch ended; known is %v", w.view)
		}
		w.take(t, event)
	case <-timer.C:
		t.Fatalf("no event comes; known is %v", w.view)
	}
}

func (w *watching) take(t *testing.T, event watch.Event) {
	t.Helper()
	if event.Type == watch.Error {
		t.Fatalf("the watch fails: %v", apierrors.FromObject(event.Object))
	}
	obj := unwrap(event.Object)
	at := parse(t, obj.GetResourceVersion())
	if event.Type == watch.Bookmark {
		w.bookmark = at
		return
	}
	w.events[obj.GetName()]++
	if at < w.view[obj.GetName()] {
		t.Errorf("%s goes back from %d to %d", obj.GetName(), w.view[obj.GetName()], at)
	}
	w.view[obj.GetName()] = at
	if event.Type == watch.Deleted {
		delete(w.view, obj.GetName())
	}
}

// unwrap returns the object in what the cache sends to several watches at once.
func unwrap(obj runtime.Object) *v1alpha1.Sandbox {
	if shared, ok := obj.(runtime.CacheableObject); ok {
		obj = shared.GetObject()
	}
	return obj.(*v1alpha1.Sandbox)
}

// until takes in events until an object is at a revision.
func (w *watching) until(t *testing.T, name string, revision uint64) view {
	t.Helper()
	for w.view[name] != revision {
		w.next(t)
	}
	return w.view
}

func mustParse(t *testing.T, selector string) labels.Selector {
	t.Helper()
	parsed, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
