// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownerindex finds, in a manager's cache, the objects of a kind that an
// object controls. It hands out the cached objects themselves: pools are large, and
// copying one to count it would cost more than counting it.
package ownerindex

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/pkg/controllers/cacheindex"
)

const name = "sandlot.io/controller-uid"

// Index finds objects of one kind by the UID of their controller.
type Index[T client.Object] struct {
	indexer toolscache.Indexer
}

// For returns the index of a cache's objects of the kind of an example, and adds
// it to the cache where it is not there yet. Call it before the cache starts.
func For[T client.Object](ctx context.Context, c cache.Cache, kind T) (*Index[T], error) {
	indexer, err := cacheindex.Add(ctx, c, kind, name, controllerUID)
	if err != nil {
		return nil, err
	}
	return &Index[T]{indexer: indexer}, nil
}

// ControlledBy returns the objects whose controller has this UID, in no order.
// They are shared with the cache and must not be changed.
func (x *Index[T]) ControlledBy(uid types.UID) ([]T, error) {
	found, err := x.indexer.ByIndex(name, string(uid))
	if err != nil {
		return nil, fmt.Errorf("looking up objects by controller: %w", err)
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
