// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"sync"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// refresh makes the index at least as new as the store was when it was called,
// for one pool. Callers at the same time share a read: one that begins after
// they came.
func (a *Allocator) refresh(ctx context.Context, p poolindex.Pool) error {
	return a.flights.join(ctx, p, func(ctx context.Context) error {
		// Others wait for this read: it must not end because the first of them left.
		ctx, cancel := a.detached(ctx, a.options.ResolveTimeout)
		defer cancel()
		sandboxes, asOf, err := a.store.PoolSandboxes(ctx, p.Namespace, p.Name)
		if err != nil {
			return err
		}
		a.feed.PoolListed(p, sandboxes, asOf)
		return nil
	})
}

// flights lets callers share work that must begin after each of them came:
// unlike with a singleflight, who comes while work is under way waits for the
// next.
type flights struct {
	mu      sync.Mutex
	waiting map[poolindex.Pool]*flight // not begun
	active  map[poolindex.Pool]*flight
}

type flight struct {
	done chan struct{}
	err  error
}

func (f *flights) join(ctx context.Context, p poolindex.Pool, work func(context.Context) error) error {
	f.mu.Lock()
	mine, leads := f.waiting[p], false
	if mine == nil {
		mine, leads = &flight{done: make(chan struct{})}, true
		if f.waiting == nil {
			f.waiting, f.active = map[poolindex.Pool]*flight{}, map[poolindex.Pool]*flight{}
		}
		f.waiting[p] = mine
	}
	ahead := f.active[p]
	f.mu.Unlock()

	if !leads {
		select {
		case <-mine.done:
			return mine.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if ahead != nil {
		<-ahead.done // which has a time limit of its own
	}
	f.mu.Lock()
	delete(f.waiting, p)
	f.active[p] = mine
	f.mu.Unlock()
	mine.err = work(ctx)
	f.mu.Lock()
	if f.active[p] == mine {
		delete(f.active, p)
	}
	f.mu.Unlock()
	close(mine.done)
	return mine.err
}
