// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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
// slot until it ends: do not wait for etcd or other servers after it. The error is an API status error.
func WaitForProcessor(ctx context.Context) error {
	if wait, ok := ctx.Value(processorKey{}).(func(context.Context) error); ok {
		return wait(ctx)
	}
	return nil
}

// processorStorage calls WaitForProcessor when it has read what is then converted and encoded: a list, a large object or
// the objects that a watch begins with. It waits only then, so that no slot is held while etcd is read. Deletions write
// after they have read, and REST waits for them.
type processorStorage struct{ storage.Interface }

func withProcessor(s storage.Interface) storage.Interface { return processorStorage{s} }

// Get implements storage.Interface.
func (s processorStorage) Get(ctx context.Context, key string, opts storage.GetOptions, into runtime.Object) error {
	if err := s.Interface.Get(ctx, key, opts, into); err != nil || ctx.Value(processorKey{}) == nil || isDeleteRequest(ctx) {
		return err
	}
	return waitIfLarge(ctx, into)
}

// waitIfLarge calls WaitForProcessor for an object that is large.
func waitIfLarge(ctx context.Context, obj runtime.Object) error {
	if sized, ok := obj.(interface{ Size() int }); ok && sized.Size() < largeRead {
		return nil
	}
	return WaitForProcessor(ctx)
}

// GetList implements storage.Interface.
func (s processorStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil || isDeleteRequest(ctx) {
		return err
	}
	return WaitForProcessor(ctx)
}

// Watch implements storage.Interface.
func (s processorStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	events, err := s.Interface.Watch(ctx, key, opts)
	if err != nil || opts.SendInitialEvents == nil && opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
		return events, err
	}
	if err := WaitForProcessor(ctx); err != nil {
		events.Stop()
		return nil, err
	}
	return events, nil
}
