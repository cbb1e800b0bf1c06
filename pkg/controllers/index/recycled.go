// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const recycledIndex = "sandlot.io/recycled"

// RecycledByPool finds the sandboxes that are being recycled, and are in no pool, by the set that they
// came from.
type RecycledByPool struct {
	indexer toolscache.Indexer
}

// NewRecycledByPool returns the index of a cache. Call it before the cache starts.
func NewRecycledByPool(ctx context.Context, c cache.Cache) (*RecycledByPool, error) {
	indexer, err := Add(ctx, c, &v1alpha1.Sandbox{}, recycledIndex, poolOfRecycled)
	if err != nil {
		return nil, err
	}
	return &RecycledByPool{indexer: indexer}, nil
}

// OfPool returns those that came from the set of a name, in no order. They are shared with the cache
// and must not be changed.
func (x *RecycledByPool) OfPool(namespace, name string) ([]*v1alpha1.Sandbox, error) {
	return lookup[*v1alpha1.Sandbox](x.indexer, recycledIndex, namespace+"/"+name)
}

func poolOfRecycled(object any) ([]string, error) {
	sandbox, ok := object.(*v1alpha1.Sandbox)
	if !ok {
		return nil, fmt.Errorf("indexing recycled sandboxes: got a %T", object)
	}
	pool := sandbox.Labels[v1alpha1.LabelSandboxPool]
	if sandbox.Status.Phase != v1alpha1.SandboxRecycling || pool == "" || v1alpha1.IsInPool(sandbox) {
		return nil, nil
	}
	return []string{sandbox.Namespace + "/" + pool}, nil
}
