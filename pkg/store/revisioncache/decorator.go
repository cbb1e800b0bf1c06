// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package revisioncache is storage with a watch cache for a resource of which one
// transaction may change several objects.
//
// The watch cache of k8s.io/apiserver takes in one event at a time and counts
// its resourceVersion up with the first event of a revision. That is right where
// a revision changes one object, as everything in Kubernetes does. A transaction
// that binds a hundred sandboxes changes a hundred at one revision, and then
//
//   - a list that asks for the state as of now may be served in the middle of
//     the revision, although the transaction is long committed: half of its
//     sandboxes are missing;
//   - a watch that continues from a revision never sees the events of that very
//     revision, so a client whose list or watch ended in the middle of it would
//     miss the others for good.
//
// So a list waits until the cache has the whole revision, and a watch from a
// revision that changed several objects sends all of that revision again, which
// level-triggered clients take twice without harm.
package revisioncache

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/pkg/store/watchcache"
)

// Options returns the getter's options with this package's storage where they
// have one with a watch cache.
func Options(getter generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return options{getter}
}

type options struct{ generic.RESTOptionsGetter }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o options) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	all, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err == nil && !watchcache.IsUncached(all.Decorator) {
		all.Decorator = decorate
	}
	return all, err
}

// decorate builds the storage as genericregistry.StorageWithCacher does, with a
// source below the cache and a consistentReader above it.
func decorate(config *storagebackend.ConfigForResource, resourcePrefix string,
	keyFunc func(obj runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
	getAttrs storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	raw, destroyRaw, err := generic.NewRawStorage(config, newFunc, newListFunc, resourcePrefix)
	if err != nil {
		return nil, nil, err
	}
	src := newSource(raw)
	cached, err := watchcache.New(src, config, resourcePrefix, keyFunc, newFunc, newListFunc, getAttrs, trigger, indexers)
	if err != nil {
		destroyRaw()
		return nil, nil, err
	}
	delegator := cacher.NewCacheDelegator(cached, src)
	checker := watchcache.NewChecker(delegator, &betweenRevisions{cached, src}, raw, config, resourcePrefix, newListFunc)
	destroy := sync.OnceFunc(func() {
		checker.Stop()
		cached.Stop()
		destroyRaw()
	})
	return &consistentReader{Interface: delegator, raw: raw, source: src, checker: checker}, destroy, nil
}

// betweenRevisions is the cache as the consistency checker lists it. The delegator's
// own checker lists the cache in the middle of a revision, compares that with the
// whole revision in etcd, and then has the cache drop its snapshots.
type betweenRevisions struct {
	*cacher.Cacher
	source *source
}

// GetList lists the cache between two revisions.
func (c *betweenRevisions) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	c.source.boundary.RLock()
	defer c.source.boundary.RUnlock()
	return c.Cacher.GetList(ctx, key, opts, list)
}
