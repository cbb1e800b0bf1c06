// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package holdings finds the sandboxes that are bound to a claim, and knows when a cache
// is not to be believed. A claim and its sandboxes change in one transaction, but are
// two watches, of which either may be behind.
package holdings

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// pageSize is how many sandboxes the server is asked for at once.
const pageSize = 500

// Cache is a cache of sandboxes. *index.ByClaim is one.
type Cache interface {
	// BoundTo returns the sandboxes that name a claim as their owner. They must not be
	// changed.
	BoundTo(claim types.UID) ([]*v1alpha1.Sandbox, error)
	// IsCurrent reports whether the cache has everything that was written before this
	// version of an object.
	IsCurrent(object client.Object) bool
}

// Finder finds what is bound to claims. Both fields are required.
type Finder struct {
	Cache Cache
	// Reader asks the server itself.
	Reader client.Reader
}

// Cached returns the sandboxes that are bound to a claim as the cache has them, and
// reports whether these are all for sure. They are not to be changed.
func (f *Finder) Cached(claim *v1alpha1.SandboxClaim) (bound []*v1alpha1.Sandbox, sure bool, err error) {
	named, err := f.Cache.BoundTo(claim.UID)
	if err != nil {
		return nil, false, fmt.Errorf("looking up the sandboxes of SandboxClaim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	for _, sandbox := range named {
		if sandbox.Namespace == claim.Namespace && v1alpha1.IsBoundTo(sandbox, claim) {
			bound = append(bound, sandbox)
		}
	}
	return bound, allListed(claim, bound) || f.Cache.IsCurrent(claim), nil
}

// allListed reports whether a claim that is Completed counts nothing but sandboxes which
// are shown as its own. The cache lacks none then.
func allListed(claim *v1alpha1.SandboxClaim, bound []*v1alpha1.Sandbox) bool {
	shown := make(map[string]bool, len(bound))
	for _, sandbox := range bound {
		// One that only starts is shown as it was before it counted.
		shown[sandbox.Name] = sandbox.Annotations[v1alpha1.AnnotationStarting] == ""
	}
	for i := range claim.Status.Sandboxes {
		if !shown[claim.Status.Sandboxes[i].Name] {
			return false
		}
	}
	return int(claim.Status.ClaimedReplicas) <= len(claim.Status.Sandboxes)
}

// Stored returns the metadata of the sandboxes that are bound to a claim as the server has
// them. The server looks at all sandboxes of the namespace for that, so it is for when the
// cache does not tell.
func (f *Finder) Stored(ctx context.Context, claim *v1alpha1.SandboxClaim) ([]*metav1.PartialObjectMetadata, error) {
	var bound []*metav1.PartialObjectMetadata
	for next := ""; ; {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("SandboxList"))
		err := f.Reader.List(ctx, list, client.InNamespace(claim.Namespace), client.Limit(pageSize), client.Continue(next),
			client.MatchingLabels{v1alpha1.LabelClaimName: claim.Name})
		if err != nil {
			return nil, fmt.Errorf("listing the sandboxes of SandboxClaim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		for i := range list.Items {
			item := &list.Items[i]
			item.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Sandbox"))
			if v1alpha1.IsBoundTo(item, claim) {
				bound = append(bound, item)
			}
		}
		if next = list.Continue; next == "" {
			return bound, nil
		}
	}
}
