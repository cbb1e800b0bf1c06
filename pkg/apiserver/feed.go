// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
)

// feed calls functions with the events of a resource's watch cache, in their order and from one
// goroutine. It is the store of a reflector, and keeps no objects.
type feed[T runtime.Object] struct {
	name    string
	store   *genericregistry.Store
	listed  func(all []T, resourceVersion uint64)
	changed func(T)
	deleted func(T)

	synced atomic.Bool
}

var _ cache.ReflectorStore = &feed[runtime.Object]{}

// run reads until ctx is done, and again from the start whenever the watch
// breaks.
func (f *feed[T]) run(ctx context.Context) {
	options := cache.ReflectorOptions{Name: f.name, TypeDescription: f.name}
	cache.NewReflectorWithOptions(listerWatcher(f.store), nil, f, options).RunWithContext(ctx)
}

// Add implements cache.ReflectorStore.
func (f *feed[T]) Add(obj any) error { return f.Update(obj) }

// Update implements cache.ReflectorStore.
func (f *feed[T]) Update(obj any) error {
	object, err := typed[T](obj)
	if err == nil {
		f.changed(object)
	}
	return err
}

// Delete implements cache.ReflectorStore.
func (f *feed[T]) Delete(obj any) error {
	object, err := typed[T](obj)
	if err == nil {
		f.deleted(object)
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (f *feed[T]) Replace(objects []any, resourceVersion string) error {
	all := make([]T, 0, len(objects))
	for _, obj := range objects {
		object, err := typed[T](obj)
		if err != nil {
			return err
		}
		all = append(all, object)
	}
	version, err := storage.APIObjectVersioner{}.ParseResourceVersion(resourceVersion)
	if err != nil {
		return fmt.Errorf("resourceVersion of the list of %s: %w", f.name, err)
	}
	f.listed(all, version)
	feedLists.WithLabelValues(f.name).Inc()
	f.synced.Store(true)
	return nil
}

// Resync implements cache.ReflectorStore.
func (f *feed[T]) Resync() error { return nil }

func typed[T runtime.Object](obj any) (T, error) {
	object, ok := obj.(T)
	if !ok {
		return object, fmt.Errorf("got a %T from the watch cache", obj)
	}
	return object, nil
}
