// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// supply finds where a claim's sandboxes can come from. It reads nothing as long as
// the catalog knows a set that serves the claim. If it knows none, sure says to look
// past it, for a set may have been made a moment ago.
func (a *Allocator) supply(ctx context.Context, claim *v1alpha1.SandboxClaim, sure bool) (supply, error) {
	s := choose(claim, &a.catalog)
	if !s.found && (sure || !a.catalog.synced()) {
		if err := a.refreshSets(ctx, claim.Namespace); err != nil {
			return supply{}, err
		}
		s = choose(claim, &a.catalog)
	}
	if s.found || s.problem != nil {
		return s, nil
	}
	template, err := a.store.SandboxTemplate(ctx, claim.Namespace, s.template)
	if err != nil {
		return supply{}, err
	}
	s.withoutSets(claim, template != nil)
	return s, nil
}

// supplyBeyondCatalog is supply for a claim that finds too little: it looks for sets
// that the catalog does not know yet, where these could make a difference.
func (a *Allocator) supplyBeyondCatalog(ctx context.Context, claim *v1alpha1.SandboxClaim, s supply) (supply, error) {
	if !s.found || !s.ofTemplate || len(s.sources) == 0 {
		return s, nil // it has looked, or it wants one set by name, or none
	}
	if err := a.refreshSets(ctx, claim.Namespace); err != nil {
		return s, err
	}
	return a.supply(ctx, claim, false)
}

// refreshSets makes the catalog at least as new as the store was when it was
// called, for one namespace.
func (a *Allocator) refreshSets(ctx context.Context, namespace string) error {
	return a.flights.join(ctx, poolindex.Pool{Namespace: namespace}, func(ctx context.Context) error {
		ctx, cancel := a.detached(ctx, a.options.ResolveTimeout) // see refresh
		defer cancel()
		sets, asOf, err := a.store.Sets(ctx, namespace)
		if err != nil {
			return err
		}
		a.catalog.listed(namespace, sets, asOf)
		return nil
	})
}

// refreshUntil makes the index at least as new as the store was when it was called,
// one pool after the other until there are n sandboxes in them.
func (a *Allocator) refreshUntil(ctx context.Context, sources []source, n int) error {
	for _, s := range sources {
		if err := a.refresh(ctx, s.pool); err != nil {
			return err
		}
		if a.queue.stock(sources) >= n {
			return nil
		}
	}
	return nil
}

// shortage is what a claim is told that would rather fail than wait and finds too
// few sandboxes. broken is why none can be made for it although it would take these.
func (a *Allocator) shortage(claim *v1alpha1.SandboxClaim, s *supply, wanted, available int, broken error) error {
	switch p := s.problem; {
	case p != nil:
		return &SourceError{Field: p.field, Name: p.name, Missing: p.missing, Message: p.message}
	case broken != nil && (!s.found || len(s.sources) == 0):
		asked, byRef := asksFor(claim)
		return &SourceError{Field: sourceField(byRef), Name: asked, Message: broken.Error()}
	}
	e := &ShortageError{Wanted: wanted, Available: available, RetryAfter: a.options.RetryAfter}
	if s.ofTemplate {
		e.Template = s.name
	} else {
		e.Set = s.name
	}
	return e
}
