// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"context"
	"errors"
	"time"
)

// Outcomes that callers distinguish. Other errors mean that the keys could not be reached.
var (
	// ErrUnknownKey means that a text is no key that is valid now, whatever the reason.
	ErrUnknownKey = errors.New("unknown API key")
	// ErrNotFound means that the team has no key of an id.
	ErrNotFound = errors.New("there is no such API key")
	// ErrForbidden means that a key may not do this to another one.
	ErrForbidden = errors.New("an API key may not do this")
	// ErrInvalid means that a request for a key says something that is not allowed.
	ErrInvalid = errors.New("the API key is not valid")
	// ErrLimit means that there are too many keys.
	ErrLimit = errors.New("too many API keys")
)

// Caller is who sent a key.
type Caller struct {
	// Team is a namespace.
	Team string
	// KeyID is the id of the key.
	KeyID string
}

// Mask is what may be shown of a key, to recognize it.
type Mask struct {
	// Prefix is what all keys begin with.
	Prefix string
	// ValueLength is how many characters follow it.
	ValueLength int
	// ValuePrefix are the first of them: those of the id, which is no secret.
	ValuePrefix string
}

// Record is what there is to say about a key.
type Record struct {
	// ID are 16 hexadecimal digits.
	ID string
	// Team is the namespace to which it belongs.
	Team string
	// Name is what its maker calls it.
	Name string
	// Mask is what may be shown of it.
	Mask Mask
	// CreatedAt is when it was made.
	CreatedAt time.Time
	// CreatedBy is the id of the key that made it, empty for an administrator.
	CreatedBy string
}

// Key is a key as a Backend stores it.
type Key struct {
	Record
	// Ancestors are the ids of the keys that it descends from. An administrator created the first, each
	// created the next, and the last created this key.
	Ancestors []string
	// Salt and Hash identify the key.
	Salt, Hash []byte
}

// Backend keeps keys. What it returns is not changed by anyone.
type Backend interface {
	// Lookup returns the key of an id, to authenticate a client: from memory where that
	// can be believed. It fails with ErrNotFound.
	Lookup(ctx context.Context, id string) (Key, error)
	// Read returns the key of an id as it is kept now. It fails with ErrNotFound.
	Read(ctx context.Context, id string) (Key, error)
	// List returns the keys of a team as they are kept now, in no order.
	List(ctx context.Context, team string) ([]Key, error)
	// Create keeps a new key, and returns it with the time of its creation.
	Create(ctx context.Context, key Key) (Key, error)
	// Delete forgets a key. It fails with ErrNotFound.
	Delete(ctx context.Context, id string) error
}
