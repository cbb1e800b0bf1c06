// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Delete deletes a key that descends from the caller's key, with all descendants of the deleted key. A
// key descends from the keys in its Ancestors. Delete returns ErrUnknownKey, ErrNotFound (also for keys
// of other teams) or ErrForbidden. The caller may retry after other errors.
func (k *Keys) Delete(ctx context.Context, caller Caller, id string) error {
	if _, err := k.readCaller(ctx, caller); err != nil {
		return err
	}
	if !IsID(id) {
		return ErrNotFound
	}
	stored, err := k.backend.List(ctx, caller.Team)
	if err != nil {
		return err
	}
	for _, key := range stored {
		ancestry := append(slices.Clone(key.Ancestors), key.ID)
		at := slices.Index(ancestry, id) // the key itself may be gone by an earlier call
		if at < 0 {
			continue
		}
		if !slices.Contains(ancestry[:at], caller.KeyID) {
			return fmt.Errorf("%w: delete key %s, which was not made with this key or its descendants", ErrForbidden, id)
		}
		_, err := k.Revoke(ctx, caller.Team, id)
		return err
	}
	return ErrNotFound
}

// Revoke deletes a key of a team with all its descendants, and returns the deleted keys. It is for
// administrators. It returns ErrNotFound if there are none. After another error it returns the keys
// that were deleted, and the caller may retry.
func (k *Keys) Revoke(ctx context.Context, team, id string) ([]Record, error) {
	if err := checkTeam(team); err != nil {
		return nil, err
	}
	if !IsID(id) {
		return nil, ErrNotFound
	}
	var gone []Key
	// List again until there are none: another request may have created a descendant meanwhile.
	for {
		stored, err := k.backend.List(ctx, team)
		if err != nil {
			return recordsOf(gone), err
		}
		// descendants includes the key itself.
		descendants := slices.DeleteFunc(slices.Clone(stored), func(key Key) bool { return key.ID != id && !slices.Contains(key.Ancestors, id) })
		if len(descendants) == 0 {
			break
		}
		// Ancestors before what they have made.
		slices.SortFunc(descendants, func(a, b Key) int { return cmp.Compare(len(a.Ancestors), len(b.Ancestors)) })
		for _, key := range descendants {
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

// recordsOf returns the Records of keys, the oldest first.
func recordsOf(stored []Key) []Record {
	records := make([]Record, 0, len(stored))
	for _, key := range stored {
		records = append(records, key.Record)
	}
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return records
}
