// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/keymutex"
)

// sharedReads lets callers share a read that begins after each of them came: unlike
// with a singleflight alone, who comes while a read is under way waits for the next.
type sharedReads struct {
	flights singleflight.Group
	locks   keymutex.KeyMutex
}

func newSharedReads() *sharedReads { return &sharedReads{locks: keymutex.NewHashed(64)} }

// join returns when a read of key has ended that began after the call, or when ctx is
// done. The read gets a context with a timeout that does not end with the caller's,
// because others wait for it.
func (r *sharedReads) join(ctx context.Context, key string, timeout time.Duration, read func(context.Context) error) error {
	shared := r.flights.DoChan(key, func() (any, error) {
		r.locks.LockKey(key)
		defer func() { _ = r.locks.UnlockKey(key) }() // which never fails
		r.flights.Forget(key)                         // who comes from now on shares the next
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		return nil, read(ctx)
	})
	select {
	case result := <-shared:
		return result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}
