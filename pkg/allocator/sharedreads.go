// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"sync"
	"time"

	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// sharedReads lets callers share a read that must begin after each of them came:
// unlike with a singleflight, who comes while a read is under way waits for the next.
type sharedReads struct {
	mu      sync.Mutex
	waiting map[poolindex.Pool]*sharedRead // not begun
	active  map[poolindex.Pool]*sharedRead
}

type sharedRead struct {
	done chan struct{}
	err  error
}

// join returns when a read has ended that began after the call. It gets a context
// with a timeout that does not end with the caller's, because others wait for it.
func (r *sharedReads) join(ctx context.Context, p poolindex.Pool, timeout time.Duration, read func(context.Context) error) error {
	r.mu.Lock()
	mine, leads := r.waiting[p], false
	if mine == nil {
		mine, leads = &sharedRead{done: make(chan struct{})}, true
		if r.waiting == nil {
			r.waiting, r.active = map[poolindex.Pool]*sharedRead{}, map[poolindex.Pool]*sharedRead{}
		}
		r.waiting[p] = mine
	}
	ahead := r.active[p]
	r.mu.Unlock()

	if !leads {
		select {
		case <-mine.done:
			return mine.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if ahead != nil {
		<-ahead.done // which has a timeout
	}
	r.mu.Lock()
	delete(r.waiting, p)
	r.active[p] = mine
	r.mu.Unlock()
	mine.err = context.Canceled // what the others are told if the read panics
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.active[p] == mine {
			delete(r.active, p)
		}
		close(mine.done)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	mine.err = read(ctx)
	return mine.err
}
