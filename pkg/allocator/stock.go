// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// stock knows which pools may serve a claim, and what they have.
type stock struct {
	store Store
	sets  setCache
	index *poolindex.Index
	queue *queue.Queue
	feed  *poolindex.Feed
	reads *sharedReads
	// timeout bounds a read that several claims wait for.
	timeout time.Duration
	// setChanged is called with what a read has shown of sets before the watch did.
	setChanged func(setChange)
	// confirm makes sure that those who are before newcomers in the lines of pools
	// still wait.
	confirm func(context.Context, []queue.Source) error
}

// eligible finds out where a claim's sandboxes can come from. It reads nothing as long
// as the cache knows a set that serves the claim. If it knows none, or only such as
// come after the set that the claim names, sure says to look past it, for that set may
// have been made a moment ago.
func (s *stock) eligible(ctx context.Context, claim *v1alpha1.SandboxClaim, sure bool) (claims.Eligible, error) {
	e := claims.EligiblePools(claim, &s.sets)
	if !e.Found && (sure || !s.sets.hasSynced()) {
		if err := s.readSets(ctx, claim.Namespace); err != nil {
			return claims.Eligible{}, err
		}
		e = claims.EligiblePools(claim, &s.sets)
	} else if sure && claim.Spec.TemplateName != "" && s.sets.Set(claim.Namespace, claim.Spec.TemplateName) == nil {
		if err := s.readSet(ctx, claim.Namespace, claim.Spec.TemplateName); err != nil {
			return claims.Eligible{}, err
		}
		e = claims.EligiblePools(claim, &s.sets)
	}
	if e.Found || e.Problem != nil {
		return e, nil
	}
	template, err := s.store.SandboxTemplate(ctx, claim.Namespace, e.MakeFromTemplate)
	if err != nil {
		return claims.Eligible{}, err
	}
	e.WithoutSets(claim, template != nil)
	return e, nil
}

// lookAgain makes sure, before a claim that needs n sandboxes fails for shortage or
// has some made, that the caches are at least as new as the store was when it was
// called: the client may have seen stock that they have not. It returns the pools that
// may serve the claim then.
func (s *stock) lookAgain(ctx context.Context, claim *v1alpha1.SandboxClaim, e claims.Eligible, n int) (claims.Eligible, error) {
	if e.Found && e.OfTemplate && len(e.Pools) > 0 { // others have looked, or want one set by name, or none
		if err := s.readSets(ctx, claim.Namespace); err != nil {
			return e, err
		}
		var err error
		if e, err = s.eligible(ctx, claim, false); err != nil {
			return e, err
		}
	}
	sources := sourcesOf(&e)
	s.resume(claim.Namespace, func(p poolindex.Pool) bool { return isSource(sources, p) })
	if err := s.readPools(ctx, sources, n); err != nil {
		return e, err
	}
	if s.queue.Free(sources) < n && s.queue.Stock(sources) >= n {
		return e, s.confirm(ctx, sources)
	}
	return e, nil
}

// resume makes sandboxes available again that were suspended because their template could not
// be found, in those pools of a namespace for which of returns true.
func (s *stock) resume(namespace string, of func(poolindex.Pool) bool) {
	for _, p := range s.index.Resume(namespace, of) {
		s.queue.Stocked(p)
	}
}

// resumeAll is resume for all pools of all namespaces.
func (s *stock) resumeAll() {
	for _, p := range s.index.ResumeAll() {
		s.queue.Stocked(p)
	}
}

// hasSuspended reports whether sandboxes of the pools wait for their template to be found.
func (s *stock) hasSuspended(sources []queue.Source) bool {
	return slices.ContainsFunc(sources, func(from queue.Source) bool { return s.index.Suspended(from.Pool) })
}

// readSet makes the cache know a set, if there is one of that name.
func (s *stock) readSet(ctx context.Context, namespace, name string) error {
	set, err := s.store.Set(ctx, namespace, name)
	if err != nil || set == nil {
		return err
	}
	for _, change := range s.sets.read(set) {
		s.setChanged(change)
	}
	return nil
}

// readSets makes the cache at least as new as the store was when it was called, for
// one namespace.
func (s *stock) readSets(ctx context.Context, namespace string) error {
	return s.reads.join(ctx, namespace, s.timeout, func(ctx context.Context) error {
		sets, asOf, err := s.store.Sets(ctx, namespace)
		if err != nil {
			return err
		}
		for _, change := range s.sets.listed(namespace, sets, asOf) {
			s.setChanged(change)
		}
		return nil
	})
}

// readAtOnce is how many pools are read for a claim at the same time.
const readAtOnce = 8

// readPools makes the index at least as new as the store was when it was called, some
// pools after the others until there are n sandboxes in all.
func (s *stock) readPools(ctx context.Context, sources []queue.Source, n int) error {
	for some := range slices.Chunk(sources, readAtOnce) {
		g, within := errgroup.WithContext(ctx)
		for _, from := range some {
			g.Go(func() error { return s.readPool(within, from.Pool) })
		}
		if err := g.Wait(); err != nil || s.queue.Free(sources) >= n {
			return err
		}
	}
	return nil
}

func (s *stock) readPool(ctx context.Context, p poolindex.Pool) error {
	return s.reads.join(ctx, p.Namespace+"/"+p.Name, s.timeout, func(ctx context.Context) error {
		sandboxes, asOf, err := s.store.PoolSandboxes(ctx, p.Namespace, p.Name)
		if err == nil {
			s.feed.PoolListed(p, sandboxes, asOf)
		}
		return err
	})
}

// sourcesOf are the pools that may serve a claim, as the queue knows them.
func sourcesOf(e *claims.Eligible) []queue.Source {
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

// linesOf are the pools in whose lines a claim stands, and whether these are meant to hold
// as much as it asks for.
func linesOf(claim *v1alpha1.SandboxClaim, e *claims.Eligible) (lines []queue.Source, enough bool) {
	sources := sourcesOf(e)
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

// wantsOf is what a claim wants of the pools that may serve it, as the queue knows it.
// taken is how many of those are reserved already.
func wantsOf(claim *v1alpha1.SandboxClaim, e *claims.Eligible, wants plan.Wants, taken int) queue.Wants {
	asked, _ := v1alpha1.AskedOf(claim)
	lines, enough := linesOf(claim, e)
	return queue.Wants{
		Need: wants.Need - taken, Has: int(claim.Status.ClaimedReplicas) + taken,
		Sources: lines, AtOnce: wants.AtOnce, Yields: wants.Yields || wants.AtOnce && !enough, Asked: asked + "/" + claim.Spec.WarmPool,
	}
}

func isSource(sources []queue.Source, p poolindex.Pool) bool {
	return slices.ContainsFunc(sources, func(from queue.Source) bool { return from.Pool == p })
}
