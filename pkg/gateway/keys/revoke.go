// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Delete takes back a key that was made with the caller's key, or with a key that was, and all
// keys that come from it. It fails with ErrUnknownKey, ErrNotFound (for keys of other teams too)
// and ErrForbidden. After another error it can be called again.
func (k *Keys) Delete(ctx context.Context, caller Caller, id string) error {
	if _, err := k.current(ctx, caller); err != nil {
		return err
	}
	if !IsID(id) {
		return ErrNotFound
	}
	kept, err := k.backend.List(ctx, caller.Team)
	if err != nil {
		return err
	}
	for _, key := range kept {
		line := append(slices.Clone(key.Makers), key.ID)
		at := slices.Index(line, id) // the key itself may be gone by an earlier call
		if at < 0 {
			continue
		}
		if !slices.Contains(line[:at], caller.KeyID) {
			return fmt.Errorf("%w: delete key %s, which does not come from it", ErrForbidden, id)
		}
		_, err := k.Revoke(ctx, caller.Team, id)
		return err
	}
	return ErrNotFound
}

// Revoke takes back a key of a team, and all keys that come from it, and returns them. It is
// for administrators. It fails with ErrNotFound if there is none of them. On another error
// it returns those that are gone; it can be called again then.
func (k *Keys) Revoke(ctx context.Context, team, id string) ([]Record, error) {
	if err := checkTeam(team); err != nil {
		return nil, err
	}
	if !IsID(id) {
		return nil, ErrNotFound
	}
	var gone []Stored
	// It looks again until there are none: one may have made another in between.
	for {
		kept, err := k.backend.List(ctx, team)
		if err != nil {
			return recordsOf(gone), err
		}
		theirs := slices.DeleteFunc(slices.Clone(kept), func(key Stored) bool { return key.ID != id && !slices.Contains(key.Makers, id) })
		if len(theirs) == 0 {
			break
		}
		// Makers before what they have made.
		slices.SortFunc(theirs, func(a, b Stored) int { return cmp.Compare(len(a.Makers), len(b.Makers)) })
		for _, key := range theirs {
			if err := k.backend.Delete(ctx, key.ID); err != nil && !errors.Is(err, ErrNotFound) {
				return recordsOf(gone), fmt.Errorf("revoking API key %s: %w", key.ID, err)
			}
			gone = append(gone, key)
		}
	}
	if len(gone) == 0 {
		return nil, ErrNotFound
	}
	return recordsOf(gone), nil
}

// recordsOf returns what there is to say about keys, the oldest first.
func recordsOf(kept []Stored) []Record {
	records := make([]Record, 0, len(kept))
	for _, key := range kept {
		records = append(records, key.Record)
	}
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return records
}
