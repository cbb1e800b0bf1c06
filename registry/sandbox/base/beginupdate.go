// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// updateKey is the key of the function of WithUpdates.
type updateKey struct{}

// WithUpdates returns a context with a function that BeginUpdate calls with the size of an object in bytes. What it
// returns is called when the update has been computed. An error of it ends the request.
func WithUpdates(ctx context.Context, begin func(ctx context.Context, bytes int) (end func(), err error)) context.Context {
	return context.WithValue(ctx, updateKey{}, begin)
}

// BeginUpdate is called before it is computed what an update makes of an object, and end afterwards. The computation may
// outlive the request.
func BeginUpdate(ctx context.Context, old runtime.Object) (end func(), err error) {
	begin, ok := ctx.Value(updateKey{}).(func(context.Context, int) (func(), error))
	if sized, isSized := old.(interface{ Size() int }); ok && isSized {
		return begin(ctx, sized.Size())
	}
	return func() {}, nil
}

// sizedUpdate is an update that calls BeginUpdate.
type sizedUpdate struct{ rest.UpdatedObjectInfo }

// UpdatedObject implements rest.UpdatedObjectInfo.
func (s *sizedUpdate) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	end, err := BeginUpdate(ctx, old)
	if err != nil {
		return nil, err
	}
	defer end()
	return s.UpdatedObjectInfo.UpdatedObject(ctx, old)
}
