// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// supply finds where a claim's sandboxes can come from. It reads nothing as long as
// the catalog knows a set that serves the claim. If it knows none, or only such as
// come after the set that the claim names, sure says to look past it, for that set
// may have been made a moment ago.
func (a *Allocator) supply(ctx context.Context, claim *v1alpha1.SandboxClaim, sure bool) (supply, error) {
	s := choose(claim, &a.catalog)
	if !s.found && (sure || !a.catalog.synced()) {
		if err := a.refreshSets(ctx, claim.Namespace); err != nil {
			return supply{}, err
		}
		s = choose(claim, &a.catalog)
	} else if sure && claim.Spec.TemplateName != "" && a.catalog.set(claim.Namespace, claim.Spec.TemplateName) == nil {
		if err := a.readSet(ctx, claim.Namespace, claim.Spec.TemplateName); err != nil {
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

// readSet makes the catalog know a set, if there is one of that name.
func (a *Allocator) readSet(ctx context.Context, namespace, name string) error {
	set, err := a.store.Set(ctx, namespace, name)
	if err != nil || set == nil {
		return err
	}
	for _, change := range a.catalog.read(set) {
		a.setMoved(change)
	}
	return nil
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
		for _, change := range a.catalog.listed(namespace, sets, asOf) {
			a.setMoved(change)
		}
		return nil
	})
}

// refreshAtOnce is how many pools a claim refreshes at the same time.
const refreshAtOnce = 8

// refreshUntil makes the index at least as new as the store was when it was called,
// some pools after the others until there are n sandboxes in all.
func (a *Allocator) refreshUntil(ctx context.Context, sources []source, n int) error {
	for some := range slices.Chunk(sources, refreshAtOnce) {
		g, within := errgroup.WithContext(ctx)
		for _, s := range some {
			g.Go(func() error { return a.refresh(within, s.pool) })
		}
		if err := g.Wait(); err != nil || a.queue.stock(sources) >= n {
			return err
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
		asked, byRef := v1alpha1.AskedOf(claim)
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
