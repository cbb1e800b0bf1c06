// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandlot-io/sandlot/pkg/gateway/lookups"
)

const (
	// maxConcurrentReads is how many keys are read by name at a time: of those that the watch has
	// reported, and of other ids.
	maxConcurrentReads = 8
	// missBurst is how many ids that do not exist are read for one source at once, and
	// missesPerSecond how many more each second.
	missBurst, missesPerSecond = 50, 10
	// readPatience is how long an authentication waits for one.
	readPatience = 5 * time.Second
)

// errBusy means that too many keys are being read.
var errBusy = errors.New("too many keys are being read from the API")

// Lookup implements Backend. It uses what the watch has reported, as long as the watch works, and reads
// other keys by name. An id that the watch has not reported may be that of a key that another replica has
// created just now. A source that asks for too many of these gets ErrNotFound without a read.
func (s *Secrets) Lookup(ctx context.Context, id string) (Key, error) {
	if found, ok := s.table.lookup(id); ok {
		return found.key, found.err
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	if s.table.isWatched(id) {
		select {
		case s.known <- struct{}{}:
			defer func() { <-s.known }()
		case <-ctx.Done():
			return Key{}, fmt.Errorf("%w: %w", errBusy, ctx.Err())
		}
		return s.readOnce(ctx, id)
	}
	key, err := s.unknown.Do(ctx, id, func(ctx context.Context) (Key, error) { return s.readOnce(ctx, id) })
	switch {
	case errors.Is(err, lookups.ErrRefused) && s.table.isFresh():
		if found, ok := s.table.lookup(id); ok { // the watch has reported it meanwhile
			return found.key, found.err
		}
		return Key{}, ErrNotFound
	case errors.Is(err, lookups.ErrRefused), err != nil && ctx.Err() != nil:
		return Key{}, fmt.Errorf("%w: %w", errBusy, err)
	}
	return key, err
}

// readOnce reads a key, unless another request has read it in the meantime.
func (s *Secrets) readOnce(ctx context.Context, id string) (Key, error) {
	if found, ok := s.table.lookup(id); ok {
		return found.key, found.err
	}
	removals := s.table.removalCount()
	key, err := s.Read(ctx, id)
	if err == nil || errors.Is(err, ErrNotFound) {
		s.table.cacheRead(id, answer{key: key, err: err}, removals)
	}
	return key, err
}
