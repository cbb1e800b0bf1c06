// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package incomplete keeps large objects of users out of caches.
package incomplete

import (
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxItems is how many items, such as rules, ports or labels, an object may have in the cache.
const maxItems = 1024

// annotation is on objects in the cache that are not whole. No object of a server has it.
const annotation = "sandlot.io/incomplete-in-cache"

var timeType = reflect.TypeFor[time.Time]()

// Transform returns a transform of a cache of objects that users make. An item of two bytes takes 50 in memory. Of an
// object with more than maxItems in its lists and maps, drop removes the content, and the cache keeps of its metadata
// what event handlers need. Readers of the cache read such an object from the server: see Is.
func Transform[T metav1.Object](drop func(T)) toolscache.TransformFunc {
	withoutManagedFields := cache.TransformStripManagedFields()
	return func(object any) (any, error) {
		object, err := withoutManagedFields(object)
		if its, ok := object.(T); ok && itemsIn(reflect.ValueOf(its)) > maxItems { // a tombstone is none
			drop(its)
			dropMetadata(its)
		}
		return object, err
	}
}

// itemsIn counts the items of all lists and maps in a value. A list of bytes is one value, and so is a time, with the
// location that it points to.
func itemsIn(v reflect.Value) (n int) {
	if v.Type() == timeType {
		return 0
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n = itemsIn(v.Elem())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			n += itemsIn(field)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 0
		}
		n = v.Len()
		for i := range v.Len() {
			n += itemsIn(v.Index(i))
		}
	case reflect.Map:
		n = v.Len()
		for each := v.MapRange(); each.Next(); {
			n += itemsIn(each.Value())
		}
	}
	return n
}

// dropMetadata marks an object as incomplete, and keeps its controller and the label by which caches select it.
func dropMetadata(object metav1.Object) {
	object.SetAnnotations(map[string]string{annotation: ""})
	var labels map[string]string
	if by, ok := object.GetLabels()[v1alpha1.LabelCreatedBy]; ok {
		labels = map[string]string{v1alpha1.LabelCreatedBy: by}
	}
	object.SetLabels(labels)
	object.SetFinalizers(nil)
	controller := metav1.GetControllerOf(object)
	object.SetOwnerReferences(nil)
	if controller != nil {
		object.SetOwnerReferences([]metav1.OwnerReference{*controller})
	}
}

// Is reports whether an object of the cache is not whole.
func Is(object metav1.Object) bool {
	_, ok := object.GetAnnotations()[annotation]
	return ok
}
