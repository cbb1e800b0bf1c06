// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// limits bound how often the API server is asked about the sandboxes of each team.
type limits struct {
	qps   rate.Limit
	burst int

	mu sync.Mutex
	// teams are the *rate.Limiter by namespace.
	teams *lru.Cache
}

// wait waits for the turn of a team. It returns an error at once if that comes after the
// deadline of ctx.
func (l *limits) wait(ctx context.Context, team string) error {
	if l.qps <= 0 {
		return nil
	}
	return l.of(team).Wait(ctx)
}

func (l *limits) of(team string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found, ok := l.teams.Get(team); ok {
		return found.(*rate.Limiter)
	}
	limiter := rate.NewLimiter(l.qps, max(l.burst, 1))
	l.teams.Add(team, limiter)
	return limiter
}
