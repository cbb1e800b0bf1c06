// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package index adds indexes to the informers of a manager's cache and looks objects
// up in them: by their controller, by the template that they refer to, by the claim that
// they are bound to and by the node that they run on. It returns
// the cached objects themselves: pools are large, and copying one to count it would
// cost more than counting it.
package index

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
			return nil, fmt.Errorf("index %s holds a %T", name, object)
		}
		objects = append(objects, typed)
	}
	return objects, nil
}

const controllerIndex = "sandlot.io/controller-uid"

// ByController finds objects of one kind by the UID of their controller.
type ByController[T client.Object] struct {
	indexer toolscache.Indexer
}

// NewByController returns the index of a cache's objects of the kind of an example.
// Call it before the cache starts.
func NewByController[T client.Object](ctx context.Context, c cache.Cache, kind T) (*ByController[T], error) {
	indexer, err := Add(ctx, c, kind, controllerIndex, controllerUID)
	if err != nil {
		return nil, err
	}
	return &ByController[T]{indexer: indexer}, nil
}

// ControlledBy returns the objects whose controller has this UID, in no order.
// They are shared with the cache and must not be changed.
func (x *ByController[T]) ControlledBy(uid types.UID) ([]T, error) {
	return lookup[T](x.indexer, controllerIndex, string(uid))
}

func controllerUID(object any) ([]string, error) {
	owned, ok := object.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("indexing by controller: got a %T", object)
	}
	owner := metav1.GetControllerOfNoCopy(owned)
	if owner == nil {
		return nil, nil
	}
	return []string{string(owner.UID)}, nil
}
