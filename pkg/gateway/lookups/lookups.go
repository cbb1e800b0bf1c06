// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lookups bounds the reads of the API server that any client can cause without a
// key: those for ids that this replica does not know.
package lookups

import (
	"context"
	"errors"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/gateway/flight"
)

const (
	// maxWaiting is how many requests wait for a read, those whose read is under way included,
	// and maxWaitingOfSource how many of one source.
	maxWaiting         = 256
	maxWaitingOfSource = 64
	// allSources is how many times as many reads without a result all sources together may cause
	// as one: clients have many sources at little cost.
	allSources = 10
	// maxSources bounds the sources that are remembered. One that was forgotten begins anew.
	maxSources = 16384
)

// ErrRefused means that nothing was read, because the source of the request has asked for too
// many ids that do not exist, or has its share of the requests that wait, or because all sources
// have asked for too many.
var ErrRefused = errors.New("too many unknown ids are asked for")

// Limits bound reads.
type Limits struct {
	// AtOnce is how many reads are under way at a time, for all sources together.
	AtOnce int
	// Misses is how many reads that return nothing or fail a source may cause at once, and
	// MissesPerSecond how many more each second. A read that finds something is free. Reads that
	// fail count too, or a client could cause any number of reads by giving up each.
	Misses          int
	MissesPerSecond rate.Limit
	// Clock is the time.
	Clock clock.PassiveClock
}

// Group reads by id within limits.
type Group[T any] struct {
	limits  Limits
	waiting *fairness.Sources
	reading chan struct{}
	shared  flight.Group[T]

	// missesOfAll is for all sources together.
	missesOfAll *rate.Limiter
	// misses are by source.
	misses *fairness.Limiters
}

// New returns a group with limits.
func New[T any](limits Limits) *Group[T] {
	return &Group[T]{
		limits: limits, waiting: fairness.NewSources(maxWaiting, maxWaitingOfSource), reading: make(chan struct{}, limits.AtOnce),
		missesOfAll: rate.NewLimiter(allSources*limits.MissesPerSecond, allSources*limits.Misses),
		misses:      fairness.NewLimiters(maxSources, limits.MissesPerSecond, limits.Misses),
	}
}

// Do returns what read returns for an id, or ErrRefused without a read. Requests of one
// source for one id share a read. The source is the one that the server has set by WithSource.
func (g *Group[T]) Do(ctx context.Context, id string, read func(context.Context) (T, error)) (T, error) {
	var none T
	source := SourceOf(ctx)
	misses := g.misses.Of(source)
	if !g.mayMiss(misses) {
		return none, ErrRefused
	}
	leave, ok := g.waiting.Take(source)
	if !ok {
		return none, ErrRefused
	}
	defer leave()
	return g.shared.Do(ctx, source+" "+id, func(ctx context.Context) (T, error) {
		select {
		case g.reading <- struct{}{}:
			defer func() { <-g.reading }()
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
		// Requests that came before it may have missed in the meantime.
		if !g.mayMiss(misses) {
			return none, ErrRefused
		}
		found, err := read(ctx)
		if err != nil {
			now := g.limits.Clock.Now()
			misses.ReserveN(now, 1) // also if that makes it negative
			g.missesOfAll.ReserveN(now, 1)
		}
		return found, err
	})
}

// mayMiss reports whether a source, of which misses are given, may cause a read without a result.
func (g *Group[T]) mayMiss(misses *rate.Limiter) bool {
	now := g.limits.Clock.Now()
	return misses.TokensAt(now) >= 1 && g.missesOfAll.TokensAt(now) >= 1
}

type sourceKey struct{}

// WithSource returns a context for the requests of a peer, whose address and port are given. The server sets
// it for each connection (ConnContext); Group.Do reads it.
func WithSource(ctx context.Context, peer string) context.Context {
	return context.WithValue(ctx, sourceKey{}, fairness.Source(peer))
}

// SourceOf returns the source of a request. Requests without one share one.
func SourceOf(ctx context.Context) string {
	source, _ := ctx.Value(sourceKey{}).(string)
	return source
}
