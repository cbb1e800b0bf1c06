// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

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
