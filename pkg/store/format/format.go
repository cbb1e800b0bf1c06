// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package format keeps a server away from a store that a newer version has written in
// a way which this one cannot read.
//
// A format is a number. It rises only when an older server could not read what a newer one
// writes; a new field of an object is no reason. It rises in two releases: the first one
// reads the new format and goes on to write the old one (Reads alone rises), the next one
// writes it (Writes follows). So two neighbouring versions always share a store, and going
// back by one always works.
package format

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// Reads is the newest format that this version reads. It reads all before.
	Reads = 1
	// Writes is the format that this version writes: Reads, or one less.
	Writes = 1
)

// Name is the name of the key in etcd, below the prefix of the store.
const Name = "sandlot-format"

// Key returns the key of the format of the store that lies under a prefix in etcd.
func Key(storagePrefix string) string { return path.Join("/", storagePrefix, Name) }

// Record is what is stored, as JSON.
type Record struct {
	// Format is the newest format that was written to the store.
	Format int `json:"format"`
	// Version is the version that was the first to write it.
	Version string `json:"version"`
}

// TooNewError means that the store has a format which this version does not read.
type TooNewError struct {
	// Key is where the store says it.
	Key string
	// Stored is what it says.
	Stored Record
	// Version is this version.
	Version string
}

// Error implements error.
func (e *TooNewError) Error() string {
	return fmt.Sprintf("the store has format %d (%s in etcd), which Sandlot %s was the first to write, and this is %s, which reads formats up to %d: "+
		"run %s or newer, or restore a backup of before that upgrade",
		e.Stored.Format, e.Key, e.Stored.Version, e.Version, Reads, e.Stored.Version)
}

// Check returns a *TooNewError if the store under a prefix in etcd has a format that this
// version does not read. It writes nothing.
func Check(ctx context.Context, kv clientv3.KV, storagePrefix, version string) error {
	_, _, err := read(ctx, kv, Key(storagePrefix), version)
	return err
}

// read returns the record under a key and the revision of etcd that wrote it, 0 if there is
// none.
func read(ctx context.Context, kv clientv3.KV, key, version string) (Record, int64, error) {
	answer, err := kv.Get(ctx, key)
	if err != nil {
		return Record{}, 0, fmt.Errorf("reading %s: %w", key, err)
	}
	if len(answer.Kvs) == 0 {
		return Record{}, 0, nil
	}
	var stored Record
	if err := json.Unmarshal(answer.Kvs[0].Value, &stored); err != nil {
		return Record{}, 0, fmt.Errorf("decoding %s, which says in which format the store is: %w", key, err)
	}
	if stored.Format > Reads {
		return Record{}, 0, &TooNewError{Key: key, Stored: stored, Version: version}
	}
	return stored, answer.Kvs[0].ModRevision, nil
}

// timeout bounds the check when a server starts.
const timeout = 20 * time.Second

// Ensure notes in the store under a prefix in etcd that this version writes to it. It
// returns a *TooNewError, and writes nothing, if the store has a format that this version
// does not read.
func Ensure(ctx context.Context, kv clientv3.KV, storagePrefix, version string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return ensure(ctx, kv, Key(storagePrefix), Record{Format: Writes, Version: version})
}

func ensure(ctx context.Context, kv clientv3.KV, key string, ours Record) error {
	content, err := json.Marshal(ours)
	if err != nil {
		return fmt.Errorf("encoding the format of the store: %w", err)
	}
	for {
		stored, revision, err := read(ctx, kv, key, ours.Version)
		if err != nil || revision > 0 && stored.Format >= ours.Format {
			return err
		}
		// Another server that starts may have come first: then its word is read.
		written, err := kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, string(content))).
			Commit()
		if err != nil {
			return fmt.Errorf("writing %s: %w", key, err)
		}
		if written.Succeeded {
			return nil
		}
	}
}
