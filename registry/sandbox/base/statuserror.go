// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// statusErrorStorage unwraps a StatusError that a transformer returns. The generic storage wraps it
// in an internal error, which would become 500.
type statusErrorStorage struct {
	storage.Interface
}

func withStatusErrors(s storage.Interface) storage.Interface { return statusErrorStorage{s} }

// Create implements storage.Interface.
func (s statusErrorStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return unwrapStatus(s.Interface.Create(ctx, key, obj, out, ttl))
}

// GuaranteedUpdate implements storage.Interface.
func (s statusErrorStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	return unwrapStatus(s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, tryUpdate, cached))
}

// unwrapStatus returns the StatusError that an internal error wraps, or err if there is none.
func unwrapStatus(err error) error {
	var status *apierrors.StatusError
	if storage.IsInternalError(err) && errors.As(err, &status) {
		return status
	}
	return err
}
