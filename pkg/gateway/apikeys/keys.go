// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"context"
	"errors"
	"fmt"
)

// Keys are the API keys of all teams.
type Keys struct {
	backend Backend
	// issuing is locked while a team issues a key, so that concurrent requests to this process
	// do not exceed MaxPerTeam together.
	issuing teamLocks
}

// New returns the keys that a backend keeps.
func New(backend Backend) *Keys {
	return &Keys{backend: backend, issuing: teamLocks{teams: map[string]*teamLock{}}}
}

// Authenticate returns the caller whose key a text is. It returns ErrUnknownKey for texts that are not valid
// keys, and other errors if the keys cannot be read now.
func (k *Keys) Authenticate(ctx context.Context, raw string) (Caller, error) {
	id, ok := idOf(raw)
	if !ok {
		decoy.matches(decoyText)
		return Caller{}, ErrUnknownKey
	}
	key, err := k.backend.Lookup(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, errDamaged):
		decoy.matches(raw)
		return Caller{}, ErrUnknownKey
	case err != nil:
		return Caller{}, fmt.Errorf("API key %s: %w", id, err)
	case !key.matches(raw):
		return Caller{}, ErrUnknownKey
	}
	return Caller{Team: key.Team, KeyID: key.ID}, nil
}

// Check returns ErrUnknownKey if the key of a caller was revoked since it was authenticated, and other errors
// if the keys cannot be read now.
func (k *Keys) Check(ctx context.Context, caller Caller) error {
	key, err := k.backend.Lookup(ctx, caller.KeyID)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, errDamaged), err == nil && key.Team != caller.Team:
		return ErrUnknownKey
	case err != nil:
		return fmt.Errorf("API key %s: %w", caller.KeyID, err)
	}
	return nil
}

// List returns the keys of a team, the oldest first.
func (k *Keys) List(ctx context.Context, team string) ([]Record, error) {
	if err := checkTeam(team); err != nil {
		return nil, err
	}
	kept, err := k.backend.List(ctx, team)
	if err != nil {
		return nil, err
	}
	return recordsOf(kept), nil
}

// readCaller reads the key of a caller from the backend: what a key may do to keys is not decided by what
// a replica remembers.
func (k *Keys) readCaller(ctx context.Context, caller Caller) (Key, error) {
	key, err := k.backend.Read(ctx, caller.KeyID)
	if errors.Is(err, ErrNotFound) || err == nil && key.Team != caller.Team {
		return Key{}, ErrUnknownKey
	}
	return key, err
}
