// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"
)

// errDamaged means that stored data is not a key of this format.
var errDamaged = errors.New("is not an API key as this version writes them")

// parseKey returns the key of stored fields. It returns an error if any of them is not valid.
func parseKey(id, team, name string, createdAt time.Time, ancestors []string, salt, sum []byte) (Key, error) {
	request := Request{Team: team, Name: name}
	key := Key{Record: Record{ID: id, Team: team, Name: name, Mask: maskOf(id), CreatedAt: createdAt}, Ancestors: ancestors, Salt: salt, Hash: sum}
	strange := slices.ContainsFunc(ancestors, func(ancestor string) bool { return !IsID(ancestor) })
	if !IsID(id) || request.check() != nil || len(ancestors) > maxAncestors || strange || len(salt) != saltBytes || len(sum) != sha256.Size {
		return Key{}, fmt.Errorf("%q %w", id, errDamaged)
	}
	if len(ancestors) > 0 {
		key.CreatedBy = ancestors[len(ancestors)-1]
	}
	return key, nil
}
