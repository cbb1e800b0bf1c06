// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// Stock knows which pools may serve a claim, and what they have.
type Stock struct {
	// Store is where sets, templates and sandboxes are read.
	Store Store
	// Sets are the sets that there are, and Index the sandboxes that can be taken, through
	// Queue. Feed is the writer of Index.
	Sets  SetCache
	Index *poolindex.Index
	Queue *queue.Queue
	Feed  *poolindex.Feed
	// SetChanged is called with what a read has shown of sets before the watch did.
	SetChanged func(SetChange)
	// Confirm makes sure that the claims that are before newcomers in the lines of pools
	// still wait.
	Confirm func(context.Context, []queue.Source) error

	reads *sharedReads
}

// readTimeout bounds a read that several claims wait for.
const readTimeout = 15 * time.Second

// NewStock returns a Stock of an index that is taken from through a queue. The caller sets SetChanged
// and Confirm.
func NewStock(store Store, index *poolindex.Index, q *queue.Queue, c clock.PassiveClock) *Stock {
	return &Stock{Store: store, Index: index, Queue: q, Feed: poolindex.NewFeed(index, q, c.Now), reads: newSharedReads()}
}

// Eligible finds out where a claim's sandboxes can come from. It reads nothing as long
// as the cache knows a set that serves the claim. If it knows none, or only such as
// come after the set that the claim names, sure says to look past it, for that set may
// have been made a moment ago.
func (s *Stock) Eligible(ctx context.Context, claim *v1alpha1.SandboxClaim, sure bool) (claims.Eligible, error) {
	e := claims.EligiblePools(claim, &s.Sets)
	if !e.Found && (sure || !s.Sets.hasSynced()) {
		if err := s.ReadSets(ctx, claim.Namespace); err != nil {
			return claims.Eligible{}, err
		}
		e = claims.EligiblePools(claim, &s.Sets)
	} else if sure && claim.Spec.TemplateName != "" && s.Sets.Set(claim.Namespace, claim.Spec.TemplateName) == nil {
		if err := s.readSet(ctx, claim.Namespace, claim.Spec.TemplateName); err != nil {
			return claims.Eligible{}, err
		}
		e = claims.EligiblePools(claim, &s.Sets)
	}
	if e.Found || e.Problem != nil {
		return e, nil
	}
	template, err := s.Store.SandboxTemplate(ctx, claim.Namespace, e.MakeFromTemplate)
	if err != nil {
		return claims.Eligible{}, err
	}
	e.WithoutSets(claim, template != nil)
	return e, nil
}

// LookAgain makes sure, before a claim that needs n sandboxes fails for shortage or
// has some made, that the caches are at least as new as the store was when it was
// called: the client may have seen stock that they have not. It returns the pools that
// may serve the claim then.
func (s *Stock) LookAgain(ctx context.Context, claim *v1alpha1.SandboxClaim, e claims.Eligible, n int) (claims.Eligible, error) {
	if e.Found && e.OfTemplate && len(e.Pools) > 0 { // others have looked, or want one set by name, or none
		if err := s.ReadSets(ctx, claim.Namespace); err != nil {
			return e, err
		}
		var err error
		if e, err = s.Eligible(ctx, claim, false); err != nil {
			return e, err
		}
	}
	sources := SourcesOf(&e)
	s.Resume(claim.Namespace, func(p poolindex.Pool) bool { return IsSource(sources, p) })
	if err := s.readPools(ctx, sources, n); err != nil {
		return e, err
	}
	stock := 0
	for _, from := range sources {
		stock += s.Index.Available(from.Pool)
	}
	if s.Queue.Free(sources) < n && stock >= n {
		return e, s.Confirm(ctx, sources)
	}
	return e, nil
}

// Resume makes sandboxes available again that were suspended because their template could not
// be found, in those pools of a namespace for which of returns true.
func (s *Stock) Resume(namespace string, of func(poolindex.Pool) bool) {
	for _, p := range s.Index.Suspensions.Resume(namespace, of) {
		s.Queue.Stocked(p)
	}
}

// ResumeAll is Resume for all pools of all namespaces.
func (s *Stock) ResumeAll() {
	for _, p := range s.Index.Suspensions.ResumeAll() {
		s.Queue.Stocked(p)
	}
}

// HasSuspended reports whether sandboxes of the pools wait for their template to be found.
func (s *Stock) HasSuspended(sources []queue.Source) bool {
	return slices.ContainsFunc(sources, func(from queue.Source) bool { return s.Index.Suspensions.Suspended(from.Pool) })
}

// readSet makes the cache know a set, if there is one of that name.
func (s *Stock) readSet(ctx context.Context, namespace, name string) error {
	set, err := s.Store.Set(ctx, namespace, name)
	if err != nil || set == nil {
		return err
	}
	for _, change := range s.Sets.read(set) {
		s.SetChanged(change)
	}
	return nil
}

// ReadSets makes the cache at least as new as the store was when it was called, for
// one namespace.
func (s *Stock) ReadSets(ctx context.Context, namespace string) error {
	return s.reads.join(ctx, namespace, readTimeout, func(ctx context.Context) error {
		sets, asOf, err := s.Store.Sets(ctx, namespace)
		if err != nil {
			return err
		}
		for _, change := range s.Sets.listed(namespace, sets, asOf) {
			s.SetChanged(change)
		}
		return nil
	})
}

// readAtOnce is how many pools are read for a claim at the same time.
const readAtOnce = 8

// readPools makes the index at least as new as the store was when it was called, some
// pools after the others until there are n sandboxes in all.
func (s *Stock) readPools(ctx context.Context, sources []queue.Source, n int) error {
	for some := range slices.Chunk(sources, readAtOnce) {
		g, within := errgroup.WithContext(ctx)
		for _, from := range some {
			g.Go(func() error { return s.readPool(within, from.Pool) })
		}
		if err := g.Wait(); err != nil || s.Queue.Free(sources) >= n {
			return err
		}
	}
	return nil
}

func (s *Stock) readPool(ctx context.Context, p poolindex.Pool) error {
	return s.reads.join(ctx, p.Namespace+"/"+p.Name, readTimeout, func(ctx context.Context) error {
		sandboxes, asOf, err := s.Store.PoolSandboxes(ctx, p.Namespace, p.Name)
		if err == nil {
			s.Feed.PoolListed(p, sandboxes, asOf)
		}
		return err
	})
}

// SourcesOf are the pools that may serve a claim, as the queue knows them.
func SourcesOf(e *claims.Eligible) []queue.Source {
	sources := make([]queue.Source, 0, len(e.Pools))
	for _, set := range e.Pools {
		sources = append(sources, queue.Source{Pool: poolindex.PoolOf(set), Rank: claims.Rank(set)})
	}
	return sources
}

// maxLines is in how many lines a claim stands at most: those of the pools it prefers,
// among those that are meant to hold anything. A place in each costs memory and time, and
// a template may have thousands of sets. Where there is stock at once, it is taken of all.
const maxLines = 64

// linesOf returns the pools in whose lines a claim waits. enough reports whether these are meant to hold
// as much as it asks for.
func linesOf(claim *v1alpha1.SandboxClaim, e *claims.Eligible) (lines []queue.Source, enough bool) {
	sources := SourcesOf(e)
	if len(sources) <= maxLines {
		return sources, true // as the plan says
	}
	capacity := 0
	for i, set := range e.Pools {
		if holds := claims.Capacity(set, claim); holds > 0 && len(lines) < maxLines {
			lines, capacity = append(lines, sources[i]), capacity+holds
		}
	}
	return lines, capacity >= claims.Replicas(claim)
}

// WantsOf is what a claim wants of the pools that may serve it, as the queue knows it.
// taken is how many of those are reserved already.
func WantsOf(claim *v1alpha1.SandboxClaim, e *claims.Eligible, wants plan.Wants, taken int) queue.Wants {
	asked, _ := v1alpha1.AskedOf(claim)
	lines, enough := linesOf(claim, e)
	return queue.Wants{
		Need: wants.Need - taken, Has: int(claim.Status.ClaimedReplicas) + taken,
		Sources: lines, AtOnce: wants.AtOnce, Yields: wants.Yields || wants.AtOnce && !enough, Asked: asked + "/" + claim.Spec.WarmPool,
	}
}

// IsSource reports whether a pool is among those that may serve a claim.
func IsSource(sources []queue.Source, p poolindex.Pool) bool {
	return slices.ContainsFunc(sources, func(from queue.Source) bool { return from.Pool == p })
}
