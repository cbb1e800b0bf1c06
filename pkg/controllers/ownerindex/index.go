// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownerindex finds, in a manager's cache, the sandboxes that an object
// controls. It hands out the cached objects themselves: pools are large, and
// copying one to count it would cost more than counting it.
package ownerindex

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const name = "sandlot.io/controller-uid"

// Index finds sandboxes by the UID of their controller.
type Index struct {
	indexer toolscache.Indexer
}

// For returns the index of a cache's sandboxes, and adds it to the cache where
// it is not there yet. Call it before the cache starts.
func For(ctx context.Context, c cache.Cache) (*Index, error) {
	informer, err := c.GetInformer(ctx, &v1alpha1.Sandbox{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("getting the informer of sandboxes: %w", err)
	}
	indexed, ok := informer.(interface{ GetIndexer() toolscache.Indexer })
	if !ok {
		return nil, fmt.Errorf("the informer of sandboxes, a %T, has no indexer", informer)
	}
	indexer := indexed.GetIndexer()
	if _, ok := indexer.GetIndexers()[name]; !ok {
		if err := informer.AddIndexers(toolscache.Indexers{name: controllerUID}); err != nil {
			return nil, fmt.Errorf("indexing sandboxes by controller: %w", err)
		}
	}
	return &Index{indexer: indexer}, nil
}

// ControlledBy returns the sandboxes whose controller has this UID, in no order.
// They are shared with the cache and must not be changed.
func (x *Index) ControlledBy(uid types.UID) ([]*v1alpha1.Sandbox, error) {
	objects, err := x.indexer.ByIndex(name, string(uid))
	if err != nil {
		return nil, fmt.Errorf("looking up sandboxes by controller: %w", err)
	}
	sandboxes := make([]*v1alpha1.Sandbox, 0, len(objects))
	for _, object := range objects {
		sandbox, ok := object.(*v1alpha1.Sandbox)
		if !ok {
			return nil, fmt.Errorf("the cache of sandboxes holds a %T", object)
		}
		sandboxes = append(sandboxes, sandbox)
	}
	return sandboxes, nil
}

func controllerUID(object any) ([]string, error) {
	sandbox, ok := object.(*v1alpha1.Sandbox)
	if !ok {
		return nil, fmt.Errorf("indexing sandboxes: got a %T", object)
	}
	owner := metav1.GetControllerOfNoCopy(sandbox)
	if owner == nil {
		return nil, nil
	}
	return []string{string(owner.UID)}, nil
}
