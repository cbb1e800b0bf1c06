// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package index adds indexes to the informers of a manager's cache and looks objects
// up in them: by their controller, and by the template that they refer to. It returns
// the cached objects themselves: pools are large, and copying one to count it would
// cost more than counting it.
package index

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Add adds an index under a name to a cache's informer of the kind of an example,
// unless the informer has one of that name, and returns the indexer. Objects read from
// it are shared with the cache. Call it before the cache starts.
func Add(
	ctx context.Context, c cache.Cache, kind client.Object, name string, values toolscache.IndexFunc,
) (toolscache.Indexer, error) {
	informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("getting the informer of %T: %w", kind, err)
	}
	indexed, ok := informer.(interface{ GetIndexer() toolscache.Indexer })
	if !ok {
		return nil, fmt.Errorf("the informer of %T, a %T, has no indexer", kind, informer)
	}
	indexer := indexed.GetIndexer()
	if _, ok := indexer.GetIndexers()[name]; !ok {
		if err := informer.AddIndexers(toolscache.Indexers{name: values}); err != nil {
			return nil, fmt.Errorf("indexing %T by %s: %w", kind, name, err)
		}
	}
	return indexer, nil
}

// lookup returns the objects of an index that have a value, in no order.
func lookup[T client.Object](indexer toolscache.Indexer, name, value string) ([]T, error) {
	found, err := indexer.ByIndex(name, value)
	if err != nil {
		return nil, fmt.Errorf("looking up objects by %s: %w", name, err)
	}
	objects := make([]T, 0, len(found))
	for _, object := range found {
		typed, ok := object.(T)
		if !ok {
			return nil, fmt.Errorf("the cache of another kind holds a %T", object)
		}
		objects = append(objects, typed)
	}
	return objects, nil
}
