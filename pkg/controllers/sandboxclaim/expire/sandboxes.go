// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package expire

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/lifetime"
)

const (
	// atOnce is how many sandboxes of a claim are written at the same time, and batch how
	// many before other claims have their turn.
	atOnce, batch = 8, 500
	// watchLag gives the cache time to show what the server has already.
	watchLag = 100 * time.Millisecond
	// graphLag gives the garbage collector of the cluster time to learn that sandboxes
	// belong to a claim. It believes its own watches, and would delete a claim whose
	// sandboxes it does not know of.
	graphLag = time.Second
)

// deleteSandboxes deletes what a claim has. Afterwards all of it is gone or being deleted.
func (c *Controller) deleteSandboxes(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	return c.each(ctx, claim,
		func(sandbox metav1.Object) bool { return sandbox.GetDeletionTimestamp() == nil },
		func(ctx context.Context, sandbox *metav1.PartialObjectMetadata) error {
			return c.Client.Delete(ctx, sandbox, client.Preconditions{UID: &sandbox.UID, ResourceVersion: &sandbox.ResourceVersion})
		}, 0)
}

// ownSandboxes makes the claim the owner of what it has, so that its deletion waits for
// them and, as each of them waits for its pod, for these too. Where a user has made it
// that, it stays as it is: to change it requires the right to bind. Other owners go: the
// garbage collector would keep a sandbox for their sake.
func (c *Controller) ownSandboxes(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	return c.each(ctx, claim,
		func(sandbox metav1.Object) bool { return !isOwned(sandbox.GetOwnerReferences(), claim.UID) },
		func(ctx context.Context, sandbox *metav1.PartialObjectMetadata) error {
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"uid":             sandbox.UID,
				"resourceVersion": sandbox.ResourceVersion,
				"ownerReferences": []metav1.OwnerReference{ownership(sandbox, claim)},
			}})
			if err != nil {
				return err
			}
			return c.Client.Patch(ctx, sandbox, client.RawPatch(types.MergePatchType, patch))
		}, graphLag)
}

// ownership returns the owner reference of a sandbox to its claim, for whose deletion it
// counts.
func ownership(sandbox metav1.Object, claim *v1alpha1.SandboxClaim) metav1.OwnerReference {
	owners := sandbox.GetOwnerReferences()
	at := slices.IndexFunc(owners, func(owner metav1.OwnerReference) bool { return owner.UID == claim.UID })
	if at < 0 {
		return *v1alpha1.OwnedByClaim(claim)
	}
	owner := owners[at]
	owner.BlockOwnerDeletion = new(true)
	return owner
}

// isOwned reports whether a claim is the only owner, and its deletion waits for what it
// owns.
func isOwned(owners []metav1.OwnerReference, claim types.UID) bool {
	return len(owners) == 1 && owners[0].UID == claim && ptr.Deref(owners[0].BlockOwnerDeletion, false)
}

// each does something for each sandbox of a claim that needs it. It fails with an
// AgainError where some are left, and, after a pause, where there were any.
func (c *Controller) each(ctx context.Context, claim *v1alpha1.SandboxClaim, needs func(metav1.Object) bool,
	do func(context.Context, *metav1.PartialObjectMetadata) error, pause time.Duration) error {
	has, err := c.sandboxesOf(ctx, claim)
	if err != nil {
		return err
	}
	has = slices.DeleteFunc(has, func(sandbox *metav1.PartialObjectMetadata) bool { return !needs(sandbox) })
	var moved atomic.Bool
	var writes errgroup.Group // one that cannot be written keeps no other alive
	writes.SetLimit(atOnce)
	for _, sandbox := range has[:min(len(has), batch)] {
		writes.Go(func() error {
			err := do(ctx, sandbox)
			switch {
			case apierrors.IsConflict(err):
				moved.Store(true) // it may be another claim's by now
			case client.IgnoreNotFound(err) != nil:
				return fmt.Errorf("ending Sandbox %s/%s of SandboxClaim %s: %w", sandbox.Namespace, sandbox.Name, claim.Name, err)
			}
			return nil
		})
	}
	switch err := writes.Wait(); {
	case err != nil:
		return err
	case moved.Load():
		return lifetime.AgainError(max(watchLag, pause))
	case len(has) > batch:
		return lifetime.AgainError(time.Millisecond)
	case len(has) > 0 && pause > 0:
		return lifetime.AgainError(pause)
	}
	return nil
}

// sandboxesOf returns what a claim has, sorted by name: what the cache shows, if that is
// all for sure, and else what the server has. What failed and is kept is left out.
func (c *Controller) sandboxesOf(ctx context.Context, claim *v1alpha1.SandboxClaim) ([]*metav1.PartialObjectMetadata, error) {
	bound, sure, err := c.finder.Cached(claim)
	if err != nil {
		return nil, err
	}
	var has []*metav1.PartialObjectMetadata
	if sure {
		for _, sandbox := range bound {
			has = append(has, &metav1.PartialObjectMetadata{ObjectMeta: *sandbox.ObjectMeta.DeepCopy()})
		}
	} else if has, err = c.finder.Stored(ctx, claim); err != nil {
		return nil, err
	}
	for _, sandbox := range has {
		sandbox.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Sandbox"))
	}
	has = slices.DeleteFunc(has, func(sandbox *metav1.PartialObjectMetadata) bool { return v1alpha1.IsReservedFailed(sandbox) })
	slices.SortFunc(has, func(a, b *metav1.PartialObjectMetadata) int { return cmp.Compare(a.Name, b.Name) })
	return has, nil
}
