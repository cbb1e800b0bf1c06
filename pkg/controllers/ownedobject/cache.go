// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxCachedItems is how many items, such as rules or ports, an object may have in the cache.
const maxCachedItems = 1024

// annotationIncomplete is on objects in the cache that are not whole. No object of a server has it.
const annotationIncomplete = "sandlot.io/incomplete-in-cache"

// WithoutLarge returns a transform of a cache of objects of a Reconciler. Users can make objects with the labels by
// which the cache selects them, and an item of two bytes takes 50 in memory. An object may have maxCachedItems in its
// lists, as items counts them, and in its metadata. Of one that has more, drop empties the lists, and the cache keeps
// of its metadata what event handlers need. The Reconciler reads such an object from the server.
func WithoutLarge[T metav1.Object](items func(T) int, drop func(T)) toolscache.TransformFunc {
	withoutManagedFields := cache.TransformStripManagedFields()
	return func(object any) (any, error) {
		if its, ok := object.(T); ok && items(its)+metadataItems(its) > maxCachedItems { // a tombstone is none
			drop(its)
			dropMetadata(its)
		}
		return withoutManagedFields(object)
	}
}

// metadataItems counts what the lists of an object's metadata have. managedFields are no part of the cache.
func metadataItems(object metav1.Object) int {
	return len(object.GetLabels()) + len(object.GetAnnotations()) + len(object.GetOwnerReferences()) + len(object.GetFinalizers())
}

// dropMetadata marks an object as incomplete, and keeps its controller and the label by which caches select it.
func dropMetadata(object metav1.Object) {
	object.SetAnnotations(map[string]string{annotationIncomplete: ""})
	object.SetLabels(map[string]string{v1alpha1.LabelCreatedBy: object.GetLabels()[v1alpha1.LabelCreatedBy]})
	object.SetFinalizers(nil)
	controller := metav1.GetControllerOf(object)
	object.SetOwnerReferences(nil)
	if controller != nil {
		object.SetOwnerReferences([]metav1.OwnerReference{*controller})
	}
}

// isIncomplete reports whether an object of the cache is not whole.
func isIncomplete(object metav1.Object) bool {
	_, ok := object.GetAnnotations()[annotationIncomplete]
	return ok
}
