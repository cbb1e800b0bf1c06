// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// fate is what an owner means for what it owns.
type fate int

const (
	// stays keeps what is owned. So does an owner that is being deleted and held by
	// somebody: what it owns follows when it is gone.
	stays fate = iota
	// gone takes along what is owned. So does an owner that is deleted in the
	// foreground.
	gone
	// parts leaves behind what is owned.
	parts
)

func fateOf(owner client.Object) fate {
	switch {
	case !isLeaving(owner):
		return stays
	case controllerutil.ContainsFinalizer(owner, metav1.FinalizerOrphanDependents):
		return parts
	default:
		return gone
	}
}

// collect deletes an object that has lost its owners. One that has another owner,
// or is to be left behind, loses only the references to those it has lost.
func (c *Controller) collect(ctx context.Context, req request, object client.Object) error {
	kept, lost, left := []metav1.OwnerReference{}, false, false
	for _, owner := range object.GetOwnerReferences() {
		fate, err := c.fate(ctx, object.GetNamespace(), &owner)
		if err != nil {
			return err
		}
		switch fate {
		case stays:
			kept = append(kept, owner)
		case gone:
			lost = true
		case parts:
			lost, left = true, true
		}
	}
	switch {
	case !lost || object.GetDeletionTimestamp() != nil && !left:
		return nil
	case left || len(kept) > 0:
		return c.patch(ctx, req, object, "ownerReferences", kept)
	}
	return c.client.Delete(ctx, object, client.Preconditions{
		UID:             new(object.GetUID()),
		ResourceVersion: new(object.GetResourceVersion()),
	})
}

// fate asks what has become of an owner. The cache is asked first, because it
// mostly knows the owner; that there is none is taken from the server alone.
func (c *Controller) fate(ctx context.Context, namespace string, owner *metav1.OwnerReference) (fate, error) {
	if !isOurs(owner) {
		return stays, nil
	}
	req := requestOf(namespace, owner)
	for _, reader := range []client.Reader{c.client, c.reader} {
		object := kinds[owner.Kind].object()
		err := reader.Get(ctx, req.NamespacedName, object, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return stays, fmt.Errorf("getting its owner, %s: %w", req, err)
		}
		if err == nil && object.GetUID() == owner.UID {
			return fateOf(object), nil
		}
	}
	return gone, nil
}

// patch sets a list in the metadata of an object that is still as it was read.
func (c *Controller) patch(ctx context.Context, req request, object client.Object, field string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             object.GetUID(),
		"resourceVersion": object.GetResourceVersion(),
		field:             value,
	}})
	if err != nil {
		return err
	}
	target := kinds[req.kind].object() // what was read belongs to the cache
	target.SetNamespace(req.Namespace)
	target.SetName(req.Name)
	return c.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
}
