// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// collect deletes an object whose owners are absent. An object that has another owner, or
// is orphaned, only loses the references to them.
func (c *Controller) collect(ctx context.Context, req request, object client.Object) error {
	kept, dangling, orphaned := []metav1.OwnerReference{}, false, false
	for _, owner := range object.GetOwnerReferences() {
		state, err := c.lookUpOwner(ctx, object.GetNamespace(), &owner)
		if err != nil {
			return err
		}
		switch state {
		case present:
			kept = append(kept, owner)
		case absent:
			dangling = true
		case orphaning:
			dangling, orphaned = true, true
		}
	}
	switch {
	case !dangling || object.GetDeletionTimestamp() != nil && !orphaned:
		return nil
	case orphaned || len(kept) > 0:
		return c.patch(ctx, req, object, "ownerReferences", kept)
	}
	return c.client.Delete(ctx, object, client.Preconditions{
		UID:             new(object.GetUID()),
		ResourceVersion: new(object.GetResourceVersion()),
	})
}

// lookUpOwner returns what has become of an owner. The cache is read first, because it
// mostly has the owner; that there is none is believed the server alone.
func (c *Controller) lookUpOwner(ctx context.Context, namespace string, owner *metav1.OwnerReference) (ownerState, error) {
	if !isWatched(owner) {
		return present, nil
	}
	req := requestForOwner(namespace, owner)
	for _, reader := range []client.Reader{c.client, c.reader} {
		object := kinds[req.kind].object()
		err := reader.Get(ctx, req.NamespacedName, object, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return present, fmt.Errorf("getting its owner, %s: %w", req, err)
		}
		if err == nil && object.GetUID() == owner.UID {
			return stateOf(object), nil
		}
	}
	return absent, nil
}
