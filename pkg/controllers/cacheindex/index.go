// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cacheindex adds indexes to the informers of a manager's cache.
package cacheindex

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Add makes a cache index its objects of the kind of an example, unless it does so
// under this name already, and returns them. What is read from them is shared with
// the cache. Call it before the cache starts.
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
