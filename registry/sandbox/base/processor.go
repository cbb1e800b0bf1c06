// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// largeRead is from how many bytes an object that is read is encoded with a slot of WaitForProcessor.
const largeRead = 32 << 10

type processorKey struct{}

// WithProcessor returns a context with the function that WaitForProcessor calls.
func WithProcessor(ctx context.Context, wait func(ctx context.Context) error) context.Context {
	return context.WithValue(ctx, processorKey{}, wait)
}

// WaitForProcessor waits until a request that reads or deletes may take much processor time. It may until it has ended, so
// it should not wait for anything but its client from then on. The error is that of ctx.
func WaitForProcessor(ctx context.Context) error {
	if wait, ok := ctx.Value(processorKey{}).(func(context.Context) error); ok {
		return wait(ctx)
	}
	return nil
}

// processorStorage calls WaitForProcessor when it has read what is then converted and encoded: a list or a large object.
// Before that it may wait for etcd, as a deletion may after it.
type processorStorage struct{ storage.Interface }

func withProcessor(s storage.Interface) storage.Interface { return processorStorage{s} }

// Get implements storage.Interface.
func (s processorStorage) Get(ctx context.Context, key string, opts storage.GetOptions, into runtime.Object) error {
	if err := s.Interface.Get(ctx, key, opts, into); err != nil || ctx.Value(processorKey{}) == nil || isDeleteRequest(ctx) {
		return err
	}
	if sized, ok := into.(interface{ Size() int }); ok && sized.Size() < largeRead {
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
