// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
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

// watchFeeds are what the allocator is fed from.
type watchFeeds struct {
	sandboxes *feed[*v1alpha1.Sandbox]
	sets      *feed[*v1alpha1.SandboxSet]
	templates *feed[*v1alpha1.SandboxTemplate]
	claims    *feed[*v1alpha1.SandboxClaim]
}

// run runs all of them until ctx is done.
func (f *watchFeeds) run(ctx context.Context, running *sync.WaitGroup) {
	running.Go(func() { f.sandboxes.run(ctx) })
	running.Go(func() { f.sets.run(ctx) })
	running.Go(func() { f.templates.run(ctx) })
	running.Go(func() { f.claims.run(ctx) })
}

// ready fails until all of them have listed their objects.
func (f *watchFeeds) ready() error {
	switch {
	case !f.sandboxes.synced.Load():
		return errors.New("the index of sandboxes is not synced")
	case !f.sets.synced.Load():
		return errors.New("the sets are not synced")
	case !f.templates.synced.Load():
		return errors.New("the templates are not synced")
	case !f.claims.synced.Load():
		return errors.New("the claims are not synced")
	}
	return nil
}

func typed[T runtime.Object](obj any) (T, error) {
	object, ok := obj.(T)
	if !ok {
		return object, fmt.Errorf("got a %T from the watch cache", obj)
	}
	return object, nil
}
