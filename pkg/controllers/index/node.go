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

const nodeIndex = "sandlot.io/node"

// PooledByNode finds the sandboxes of pools by the node that they run on.
type PooledByNode struct {
	indexer toolscache.Indexer
}

// NewPooledByNode returns the index of a cache. Call it before the cache starts.
func NewPooledByNode(ctx context.Context, c cache.Cache) (*PooledByNode, error) {
	indexer, err := Add(ctx, c, &v1alpha1.Sandbox{}, nodeIndex, nodeOfPooled)
	if err != nil {
		return nil, err
	}
	return &PooledByNode{indexer: indexer}, nil
}

// OnNode returns the sandboxes of pools on a node, in no order. They are shared with the
// cache and must not be changed.
func (x *PooledByNode) OnNode(name string) ([]*v1alpha1.Sandbox, error) {
	return lookup[*v1alpha1.Sandbox](x.indexer, nodeIndex, name)
}

func nodeOfPooled(object any) ([]string, error) {
	sandbox, ok := object.(*v1alpha1.Sandbox)
	if !ok {
		return nil, fmt.Errorf("indexing sandboxes by node: got a %T", object)
	}
	if sandbox.Status.NodeName == "" || !v1alpha1.IsInPool(sandbox) {
		return nil, nil
	}
	return []string{sandbox.Status.NodeName}, nil
}
