// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// SandboxWork is for how many bytes each sandbox counts that a dry run of a claim takes, or that is listed for a release.
const SandboxWork = 4 << 10

// workKey is the key of the function of WithWork.
type workKey struct{}

// WithWork returns a context with a function that BeginWork calls. What it returns is called when the work is done. An
// error of it ends the request.
func WithWork(ctx context.Context, begin func(ctx context.Context, bytes int) (end func(), err error)) context.Context {
	return context.WithValue(ctx, workKey{}, begin)
}

// BeginWork is called before a request does what takes processor time by a number of bytes, and end afterwards. The work
// may outlive the request.
func BeginWork(ctx context.Context, bytes int) (end func(), err error) {
	if begin, ok := ctx.Value(workKey{}).(func(context.Context, int) (func(), error)); ok {
		return begin(ctx, bytes)
	}
	return func() {}, nil
}

// BeginUpdate is BeginWork for computing what an update makes of an object.
func BeginUpdate(ctx context.Context, old runtime.Object) (end func(), err error) {
	if sized, ok := old.(interface{ Size() int }); ok {
		return BeginWork(ctx, sized.Size())
	}
	return func() {}, nil
}

// CheckUpdate checks the result of an update before it is stored. err is the error of computing it; updated is nil then.
// What it returns replaces err.
type CheckUpdate func(old, updated runtime.Object, err error) error

type checkUpdateKey struct{}

// WithCheckUpdate returns a context in which updates are checked.
func WithCheckUpdate(ctx context.Context, check CheckUpdate) context.Context {
	return context.WithValue(ctx, checkUpdateKey{}, check)
}

// checkedUpdate is an update that calls BeginUpdate, and CheckUpdate when it is computed.
type checkedUpdate struct{ rest.UpdatedObjectInfo }

// UpdatedObject implements rest.UpdatedObjectInfo.
func (s *checkedUpdate) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	end, err := BeginUpdate(ctx, old)
	if err != nil {
		return nil, err
	}
	defer end()
	updated, err := s.UpdatedObjectInfo.UpdatedObject(ctx, old)
	if check, ok := ctx.Value(checkUpdateKey{}).(CheckUpdate); ok {
		err = check(old, updated, err)
	}
	return updated, err
}
