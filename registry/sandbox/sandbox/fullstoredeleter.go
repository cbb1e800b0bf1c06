// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// fullStoreDeleter lets sandboxes be deleted while etcd is full. A sandbox that is paused or is
// being resumed has a finalizer, so the generic store sets its deletionTimestamp first. A full
// etcd refuses that write, but it accepts deletes, which make room.
type fullStoreDeleter struct {
	storage.Interface
}

// deleteWhenFull wraps a storage of sandboxes in a fullStoreDeleter.
func deleteWhenFull(sandboxes storage.Interface) storage.Interface {
	return fullStoreDeleter{sandboxes}
}

// GuaranteedUpdate deletes a sandbox if etcd has no space to set its deletionTimestamp, and if
// its only finalizer is the one for pauses. With another finalizer, such as that of foreground
// deletion, the write is needed, and its error is returned.
func (s fullStoreDeleter) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	var deletes *storage.Preconditions // set if the last update set a deletionTimestamp
	update := func(input runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		before, _ := input.(*v1alpha1.Sandbox)
		lives := before != nil && before.DeletionTimestamp == nil // the update may change the input
		var version string
		if lives {
			version = before.ResourceVersion
		}
		updated, ttl, err := tryUpdate(input, meta)
		deletes = nil
		if after, ok := updated.(*v1alpha1.Sandbox); ok && lives && after.DeletionTimestamp != nil &&
			slices.Equal(after.Finalizers, []string{v1alpha1.FinalizerSandbox}) {
			deletes = &storage.Preconditions{UID: &after.UID, ResourceVersion: &version}
		}
		return updated, ttl, err
	}
	err := s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
	if deletes == nil || !errors.Is(err, rpctypes.ErrNoSpace) {
		return err
	}
	if s.Delete(ctx, key, out, deletes, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}) != nil {
		return err // that of the update, which says that there is no space
	}
	return nil
}
