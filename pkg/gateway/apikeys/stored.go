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

// errDamaged means that what is kept is no key of ours.
var errDamaged = errors.New("is not an API key as this version writes them")

// assemble puts a key together from what was kept, and refuses what cannot have been: none
// of it is believed half.
func assemble(id, team, name string, createdAt time.Time, makers []string, salt, sum []byte) (Stored, error) {
	request := Request{Team: team, Name: name}
	key := Stored{Record: Record{ID: id, Team: team, Name: name, Mask: maskOf(id), CreatedAt: createdAt}, Makers: makers, Salt: salt, Hash: sum}
	strange := slices.ContainsFunc(makers, func(maker string) bool { return !IsID(maker) })
	if !IsID(id) || request.check() != nil || len(makers) > maxMakers || strange || len(salt) != saltBytes || len(sum) != sha256.Size {
		return Stored{}, fmt.Errorf("%q %w", id, errDamaged)
	}
	if len(makers) > 0 {
		key.CreatedBy = makers[len(makers)-1]
	}
	return key, nil
}
