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

// answeringStorage returns a Status from what encrypts objects as it is. The generic storage
// wraps it, and the generic server answers 500 for what is wrapped.
type answeringStorage struct {
	storage.Interface
}

func answer(s storage.Interface) storage.Interface { return answeringStorage{s} }

// Create implements storage.Interface.
func (s answeringStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return statusOf(s.Interface.Create(ctx, key, obj, out, ttl))
}

// GuaranteedUpdate implements storage.Interface.
func (s answeringStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	return statusOf(s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, tryUpdate, cached))
}

// statusOf returns the Status that an internal error wraps, or else the error.
func statusOf(err error) error {
	var status *apierrors.StatusError
	if storage.IsInternalError(err) && errors.As(err, &status) {
		return status
	}
	return err
}
