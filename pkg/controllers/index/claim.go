// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const claimIndex = "sandlot.io/claim-uid"

// ByClaim finds sandboxes by the UID of the claim that they are bound to.
type ByClaim struct {
	indexer toolscache.Indexer
}

// NewByClaim returns the index of a cache's sandboxes. Call it before the cache starts.
func NewByClaim(ctx context.Context, c cache.Cache) (*ByClaim, error) {
	indexer, err := Add(ctx, c, &v1alpha1.Sandbox{}, claimIndex, claimUID)
	if err != nil {
		return nil, err
	}
	return &ByClaim{indexer: indexer}, nil
}

// BoundTo returns the sandboxes that name this UID as their owner's, in no order. They
// are shared with the cache and must not be changed.
func (x *ByClaim) BoundTo(claim types.UID) ([]*v1alpha1.Sandbox, error) {
	return lookup[*v1alpha1.Sandbox](x.indexer, claimIndex, string(claim))
}

// IsCurrent reports whether the cache has all of the sandboxes that was written before
// this version of an object of our group, or with it: these are all in one store, with one
// count of revisions. A revision of several sandboxes is shown one by one, so the cache
// must have seen a later one. One that hears nothing because nothing happens is not
// current.
func (x *ByClaim) IsCurrent(object client.Object) bool {
	shown, ok := x.indexer.(interface{ LastStoreSyncResourceVersion() string })
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(shown.LastStoreSyncResourceVersion(), object.GetResourceVersion())
	return err == nil && order > 0 // an error: the cache does not know its revision
}

func claimUID(object any) ([]string, error) {
	sandbox, ok := object.(*v1alpha1.Sandbox)
	if !ok {
		return nil, fmt.Errorf("indexing by claim: got a %T", object)
	}
	if owner := sandbox.Annotations[v1alpha1.AnnotationOwner]; owner != "" {
		return []string{owner}, nil
	}
	return nil, nil
}
