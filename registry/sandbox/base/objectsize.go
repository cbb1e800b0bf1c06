// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// objectSizeKey is the key of the function of WithObjectSize.
type objectSizeKey struct{}

// WithObjectSize returns a context with a function that is called with the size of the stored object in bytes before an
// update computes what it becomes. An error of it ends the update.
func WithObjectSize(ctx context.Context, check func(ctx context.Context, bytes int) error) context.Context {
	return context.WithValue(ctx, objectSizeKey{}, check)
}

// sizedUpdate is an update that calls the function of WithObjectSize.
type sizedUpdate struct{ rest.UpdatedObjectInfo }

// UpdatedObject implements rest.UpdatedObjectInfo.
func (s *sizedUpdate) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	if check, ok := ctx.Value(objectSizeKey{}).(func(context.Context, int) error); ok {
		if sized, ok := old.(interface{ Size() int }); ok {
			if err := check(ctx, sized.Size()); err != nil {
				return nil, err
			}
		}
	}
	return s.UpdatedObjectInfo.UpdatedObject(ctx, old)
}
