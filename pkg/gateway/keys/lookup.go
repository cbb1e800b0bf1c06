// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// maxReads is how many reads by name may be under way at a time.
	maxReads = 8
	// readPatience is how long an authentication waits for one.
	readPatience = 5 * time.Second
)

// errBusy means that too many keys are being read.
var errBusy = errors.New("too many keys are being read from the API")

// Lookup implements Backend. What the watch has told is believed as long as the watch works,
// anything else is read by name.
func (s *Secrets) Lookup(ctx context.Context, id string) (Stored, error) {
	if found, ok := s.table.lookup(id); ok {
		return found.key, found.err
	}
	places := s.unknown
	if s.table.knows(id) {
		places = s.known
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-ctx.Done():
		return Stored{}, fmt.Errorf("%w: %w", errBusy, ctx.Err())
	}
	if found, ok := s.table.lookup(id); ok { // another has read it meanwhile
		return found.key, found.err
	}
	changes := s.table.changes()
	key, err := s.Read(ctx, id)
	if err == nil || errors.Is(err, ErrNotFound) {
		s.table.note(id, answer{key: key, err: err}, changes)
	}
	return key, err
}
