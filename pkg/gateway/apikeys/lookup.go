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

// Lookup implements Backend. What the watch has told is believed as long as the watch works,
// anything else is read by name. An id of which the watch has not told may be that of a key
// that another replica has made just now. Who asks for too many of these hears what the watch
// knows: that there is no such key.
func (s *Secrets) Lookup(ctx context.Context, id string) (Stored, error) {
	if found, ok := s.table.lookup(id); ok {
		return found.key, found.err
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	if s.table.knows(id) {
		select {
		case s.known <- struct{}{}:
			defer func() { <-s.known }()
		case <-ctx.Done():
			return Stored{}, fmt.Errorf("%w: %w", errBusy, ctx.Err())
		}
		return s.readOnce(ctx, id)
	}
	key, err := s.unknown.Do(ctx, id, func(ctx context.Context) (Stored, error) { return s.readOnce(ctx, id) })
	switch {
	case errors.Is(err, lookups.ErrRefused) && s.table.current():
		if found, ok := s.table.lookup(id); ok { // told while it waited
			return found.key, found.err
		}
		return Stored{}, ErrNotFound
	case errors.Is(err, lookups.ErrRefused), err != nil && ctx.Err() != nil:
		return Stored{}, fmt.Errorf("%w: %w", errBusy, err)
	}
	return key, err
}

// readOnce reads a key, unless another request has read it in the meantime.
func (s *Secrets) readOnce(ctx context.Context, id string) (Stored, error) {
	if found, ok := s.table.lookup(id); ok {
		return found.key, found.err
	}
	changes := s.table.changes()
	key, err := s.Read(ctx, id)
	if err == nil || errors.Is(err, ErrNotFound) {
		s.table.note(id, answer{key: key, err: err}, changes)
	}
	return key, err
}
