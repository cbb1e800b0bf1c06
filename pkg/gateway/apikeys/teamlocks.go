// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// teamLocks are locks by team. Teams do not wait for each other.
type teamLocks struct {
	mu    sync.Mutex
	teams map[string]*teamLock
}

// teamLock is the lock of a team. It exists while it has callers.
type teamLock struct {
	*semaphore.Weighted
	callers int
}

// lock locks a team. It fails when ctx is done.
func (t *teamLocks) lock(ctx context.Context, team string) (unlock func(), err error) {
	l := t.join(team)
	if err := l.Acquire(ctx, 1); err != nil {
		t.leave(team, l)
		return nil, err
	}
	return func() {
		l.Release(1)
		t.leave(team, l)
	}, nil
}

// join returns the lock of a team, with one more caller.
func (t *teamLocks) join(team string) *teamLock {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.teams[team]
	if l == nil {
		l = &teamLock{Weighted: semaphore.NewWeighted(1)}
		t.teams[team] = l
	}
	l.callers++
	return l
}

// leave undoes join.
func (t *teamLocks) leave(team string, l *teamLock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.callers--; l.callers == 0 {
		delete(t.teams, team)
	}
}
