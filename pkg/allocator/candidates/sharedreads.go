// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"sync"
	"time"
)

// sharedReads lets callers share a read that begins after each of them has called. At most one
// read of a key runs at a time, and callers that arrive while it runs share the next one. Reads
// of different keys never wait for each other.
type sharedReads struct {
	mu sync.Mutex
	// last is, by key, the newest read that has not ended.
	last map[string]*sharedRead
}

// sharedRead is one read.
type sharedRead struct {
	// begun is guarded by the lock of sharedReads. New callers cannot share a read that has begun.
	begun bool
	// done is closed when the read has ended, with err.
	done chan struct{}
	err  error
}

func newSharedReads() *sharedReads { return &sharedReads{last: map[string]*sharedRead{}} }

// join returns when a read of key has ended that began after the call, or when ctx is
// done. The read gets a context with a timeout that does not end with the caller's,
// because others wait for it.
func (r *sharedReads) join(ctx context.Context, key string, timeout time.Duration, read func(context.Context) error) error {
	shared := r.next(key, func(shared, before *sharedRead) {
		r.run(context.WithoutCancel(ctx), key, timeout, read, shared, before)
	})
	select {
	case <-shared.done:
		return shared.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next returns the read of key that has not begun yet. If there is none, it makes one and
// starts run in a goroutine, with the read that has to end before it, or nil.
func (r *sharedReads) next(key string, run func(shared, before *sharedRead)) *sharedRead {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.last[key]
	if last != nil && !last.begun {
		return last
	}
	shared := &sharedRead{done: make(chan struct{})}
	r.last[key] = shared
	go run(shared, last)
	return shared
}

// run waits for the end of the read before, and then reads.
func (r *sharedReads) run(ctx context.Context, key string, timeout time.Duration, read func(context.Context) error, shared, before *sharedRead) {
	defer close(shared.done)
	if before != nil {
		<-before.done
	}
	r.mu.Lock()
	shared.begun = true
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	shared.err = read(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last[key] == shared {
		delete(r.last, key)
	}
}
