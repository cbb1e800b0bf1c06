// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watchcache is storage with the watch cache of k8s.io/apiserver, whose checks read etcd in small pages.
//
// Every few minutes the cache of each resource is compared with etcd. The checker of k8s.io/apiserver decodes 10,000
// objects at a time for that, however large they are: with objects of some 100 KB that takes as much memory again as
// all that is stored.
package watchcache

import (
	"context"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/cacher/consistency"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/pkg/memory"
)

const (
	// checkerPage is how many objects the checker asks for at a time.
	checkerPage = 10000
	// minPage and maxPage are how many it gets: one for each pageMemory of the memory limit. For each page, etcd
	// counts all objects behind it.
	minPage, maxPage = 64, 1000
	pageMemory       = 64 << 20
)

// Options returns the getter's options with this package's storage where they have one with a watch cache.
func Options(getter generic.RESTOptionsGetter) generic.RESTOptionsGetter { return options{getter} }

type options struct{ generic.RESTOptionsGetter }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o options) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	all, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err == nil && !IsUncached(all.Decorator) {
		all.Decorator = decorate
	}
	return all, err
}

// IsUncached reports whether a decorator leaves the watch cache out, as with --watch-cache=false.
func IsUncached(decorator generic.StorageDecorator) bool {
	return reflect.ValueOf(decorator).Pointer() == reflect.ValueOf(generic.UndecoratedStorage).Pointer()
}

// decorate builds the storage as genericregistry.StorageWithCacher does, with a checker of small pages.
func decorate(config *storagebackend.ConfigForResource, resourcePrefix string,
	keyFunc func(obj runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
	getAttrs storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	raw, destroyRaw, err := generic.NewRawStorage(config, newFunc, newListFunc, resourcePrefix)
	if err != nil {
		return nil, nil, err
	}
	cached, err := New(raw, config, resourcePrefix, keyFunc, newFunc, newListFunc, getAttrs, trigger, indexers)
	if err != nil {
		destroyRaw()
		return nil, nil, err
	}
	delegator := cacher.NewCacheDelegator(cached, raw)
	checker := NewChecker(delegator, cached, raw, config, resourcePrefix, newListFunc)
	return delegator, sync.OnceFunc(func() {
		checker.Stop()
		cached.Stop()
		destroyRaw()
	}), nil
}

// New returns a watch cache of a storage.
func New(below storage.Interface, config *storagebackend.ConfigForResource, resourcePrefix string,
	keyFunc func(obj runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
	getAttrs storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers,
) (*cacher.Cacher, error) {
	return cacher.NewCacherFromConfig(cacher.Config{
		Storage:             below,
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      resourcePrefix,
		KeyFunc:             keyFunc,
		NewFunc:             newFunc,
		NewListFunc:         newListFunc,
		GetAttrsFunc:        getAttrs,
		IndexerFuncs:        trigger,
		Indexers:            indexers,
		Codec:               config.Codec,
	})
}

// Checker compares a watch cache with etcd now and then.
type Checker struct {
	*consistency.Checker
	stop    chan struct{}
	running sync.WaitGroup
}

// Cache is what a Checker compares with etcd.
type Cache interface {
	GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error
	Ready() bool
	MarkConsistent(consistent bool)
}

// NewChecker starts a checker of a cache in place of that of the delegator. raw is the storage of etcd. The caller has
// to stop it.
func NewChecker(delegator *cacher.CacheDelegator, cached Cache, raw storage.Interface, config *storagebackend.ConfigForResource,
	resourcePrefix string, newListFunc func() runtime.Object,
) *Checker {
	delegator.Stop() // ends its checker, and nothing else
	c := &Checker{
		Checker: consistency.NewChecker(resourcePrefix, config.GroupResource, newListFunc, cached, smallPages{raw}),
		stop:    make(chan struct{}),
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.DetectCacheInconsistency) || consistency.PanicOnCacheInconsistency {
		c.running.Go(func() { c.Run(c.stop) })
	}
	return c
}

// Stop stops the checker, and waits until it has ended.
func (c *Checker) Stop() {
	close(c.stop)
	c.running.Wait()
}

// onePage is held while a page is read, so that the checkers of all kinds decode one at a time.
var onePage sync.Mutex

// pageFor returns how many objects a page has with a memory limit.
func pageFor(limit int64) int64 { return min(max(limit/pageMemory, minPage), maxPage) }

// smallPages is a storage that answers the lists of a checker in small pages. The checker follows their tokens.
type smallPages struct{ storage.Interface }

// GetList implements storage.Interface.
func (s smallPages) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if opts.Predicate.Limit >= checkerPage {
		opts.Predicate.Limit = pageFor(memory.Size())
		onePage.Lock()
		defer onePage.Unlock()
	}
	return s.Interface.GetList(ctx, key, opts, list)
}
