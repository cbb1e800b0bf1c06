// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// maxCachedItems is how many items, such as rules or ports, an object may have in the cache.
const maxCachedItems = 1024

// annotationIncomplete is on objects in the cache that are not whole. No object of a server has it.
const annotationIncomplete = "sandlot.io/incomplete-in-cache"

// WithoutLarge returns a transform of a cache of objects of a Reconciler. Users can make objects with the labels by
// which the cache selects them, and an item of two bytes takes 50 in memory. drop empties the list of an object that
// has more items than maxCachedItems, as items counts them. The Reconciler reads such an object from the server.
func WithoutLarge[T metav1.Object](items func(T) int, drop func(T)) toolscache.TransformFunc {
	withoutManagedFields := cache.TransformStripManagedFields()
	return func(object any) (any, error) {
		if its, ok := object.(T); ok && items(its) > maxCachedItems { // a tombstone is none
			drop(its)
			its.SetAnnotations(map[string]string{annotationIncomplete: ""})
		}
		return withoutManagedFields(object)
	}
}

// isIncomplete reports whether an object of the cache is not whole.
func isIncomplete(object metav1.Object) bool {
	_, ok := object.GetAnnotations()[annotationIncomplete]
	return ok
}
