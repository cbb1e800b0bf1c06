// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// maxCachedItems is how many items, such as rules or ports, an object may have in the cache. Reconcilers make no
// object with nearly as many.
const maxCachedItems = 1024

// WithoutLarge returns a transform of a cache of objects of a Reconciler. Users can make objects with the labels by
// which the cache selects them, and an item of two bytes takes 50 in memory. drop empties the list of an object that
// has more items than maxCachedItems, as items counts them. The object then differs from what it should be.
func WithoutLarge[T any](items func(T) int, drop func(T)) toolscache.TransformFunc {
	withoutManagedFields := cache.TransformStripManagedFields()
	return func(object any) (any, error) {
		if its, ok := object.(T); ok && items(its) > maxCachedItems { // a tombstone is none
			drop(its)
		}
		return withoutManagedFields(object)
	}
}
