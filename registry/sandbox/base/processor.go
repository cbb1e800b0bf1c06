// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
)

// largeRead is from how many bytes an object that is read is encoded with a slot of WaitForProcessor.
const largeRead = 32 << 10

type processorKey struct{}

// WithProcessorWait returns a context with the function that WaitForProcessor calls.
func WithProcessorWait(ctx context.Context, wait func(ctx context.Context) error) context.Context {
	return context.WithValue(ctx, processorKey{}, wait)
}

// WaitForProcessor waits for a slot before work that takes much processor time, such as encoding. The request keeps the
// slot until it ends: wait for etcd or other servers before it where that is possible. The error is an API status error.
func WaitForProcessor(ctx context.Context) error {
	if wait, ok := ctx.Value(processorKey{}).(func(context.Context) error); ok {
		return wait(ctx)
	}
	return nil
}

// waitForObject calls WaitForProcessor for an object that is large in the cache, before it is read from etcd or deleted:
// decoding it takes as long as encoding it. What is not in the cache is not waited for.
func waitForObject(ctx context.Context, store *genericregistry.Store, name string) error {
	if ctx.Value(processorKey{}) == nil {
		return nil
	}
	cached, err := store.Get(ctx, name, &metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return nil //nolint:nilerr // the caller gets the same error, or makes one
	}
	if sized, ok := cached.(interface{ Size() int }); ok && sized.Size() < largeRead {
		return nil
	}
	return WaitForProcessor(ctx)
}

// getObject reads an object for a response.
func getObject(ctx context.Context, store *genericregistry.Store, name string, options *metav1.GetOptions) (runtime.Object, error) {
	if err := waitForObject(ctx, store, name); err != nil {
		return nil, err
	}
	return store.Get(ctx, name, options)
}

// processorStorage calls WaitForProcessor for a watch that begins with all objects, and when it has read a list, which is
// then converted and encoded. It waits only then, so that no slot is held while etcd is read. A deletecollection writes what
// it has listed.
type processorStorage struct{ storage.Interface }

func withProcessor(s storage.Interface) storage.Interface { return processorStorage{s} }

// GetList implements storage.Interface.
func (s processorStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil || isDeleteRequest(ctx) {
		return err
	}
	return WaitForProcessor(ctx)
}

// Watch implements storage.Interface. It waits before the watch begins, which has to be read from then on.
func (s processorStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil || opts.ResourceVersion == "" || opts.ResourceVersion == "0" {
		if err := WaitForProcessor(ctx); err != nil {
			return nil, err
		}
	}
	return s.Interface.Watch(ctx, key, opts)
}
