// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// deletableStorage lets sandboxes be deleted where etcd is full. A sandbox that is paused
// or resumes has a finalizer, so the generic store first writes that it is being deleted,
// and a full etcd takes no writes. It takes deletes, which make room.
type deletableStorage struct {
	storage.Interface
}

// makeDeletable puts deletableStorage below the store of sandboxes.
func makeDeletable(sandboxes *genericregistry.Store) {
	sandboxes.Storage.Storage = deletableStorage{sandboxes.Storage.Storage}
}

// GuaranteedUpdate deletes a sandbox in place of writing that it is being deleted, if etcd
// has no space for that, and the sandbox waits for nothing but that its controller removes
// the finalizer of its pause.
func (s deletableStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	var ends *storage.Preconditions // of the sandbox that the last update begins to delete
	update := func(input runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		before, _ := input.(*v1alpha1.Sandbox)
		lives := before != nil && before.DeletionTimestamp == nil // the update may change the input
		var version string
		if lives {
			version = before.ResourceVersion
		}
		updated, ttl, err := tryUpdate(input, meta)
		ends = nil
		if after, ok := updated.(*v1alpha1.Sandbox); ok && lives && after.DeletionTimestamp != nil &&
			slices.Equal(after.Finalizers, []string{v1alpha1.FinalizerSandbox}) {
			ends = &storage.Preconditions{UID: &after.UID, ResourceVersion: &version}
		}
		return updated, ttl, err
	}
	err := s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
	if ends == nil || !errors.Is(err, rpctypes.ErrNoSpace) {
		return err
	}
	if s.Delete(ctx, key, out, ends, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}) != nil {
		return err // it was that for which there is no space
	}
	return nil
}
