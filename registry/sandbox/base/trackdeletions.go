// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

// deletion is the update of one object by a delete request.
type deletion struct {
	// begins reports whether this update sets the deletionTimestamp.
	begins bool
}

type deletionKey struct{}

// BeginsDeletion reports whether a write belongs to a delete request and is the one that sets the
// deletionTimestamp. ctx is the context that the storage passes to a transformer. Further deletes
// of the same object can write it again, with other finalizers.
func BeginsDeletion(ctx context.Context) bool {
	d, ok := ctx.Value(deletionKey{}).(*deletion)
	return ok && d.begins
}

// deletionStorage records for BeginsDeletion what a delete request does. DeleteCollection updates
// many objects at the same time with the same context, so each update has its own record.
type deletionStorage struct {
	storage.Interface
}

func trackDeletions(s storage.Interface) storage.Interface { return deletionStorage{s} }

// GuaranteedUpdate implements storage.Interface.
func (s deletionStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	if isDeleteRequest(ctx) {
		d, inner := &deletion{}, tryUpdate
		ctx = context.WithValue(ctx, deletionKey{}, d)
		tryUpdate = func(input runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
			object, err := meta.Accessor(input) // before the update, which may change the input
			d.begins = err == nil && object.GetDeletionTimestamp() == nil
			return inner(input, response)
		}
	}
	return s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, tryUpdate, cached)
}

func isDeleteRequest(ctx context.Context) bool {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	return ok && (info.Verb == "delete" || info.Verb == "deletecollection")
}
