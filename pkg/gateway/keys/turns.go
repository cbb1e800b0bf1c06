// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// turns let one caller of each team work at a time. Teams do not wait for each other.
type turns struct {
	mu    sync.Mutex
	teams map[string]*turn
}

// turn is that of a team, for as long as there are callers.
type turn struct {
	*semaphore.Weighted
	callers int
}

// take waits for the turn of a team until ctx is done. end gives it back.
func (t *turns) take(ctx context.Context, team string) (end func(), err error) {
	its := t.join(team)
	if err := its.Acquire(ctx, 1); err != nil {
		t.leave(team, its)
		return nil, err
	}
	return func() {
		its.Release(1)
		t.leave(team, its)
	}, nil
}

func (t *turns) join(team string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	its := t.teams[team]
	if its == nil {
		its = &turn{Weighted: semaphore.NewWeighted(1)}
		t.teams[team] = its
	}
	its.callers++
	return its
}

func (t *turns) leave(team string, its *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if its.callers--; its.callers == 0 {
		delete(t.teams, team)
	}
}
