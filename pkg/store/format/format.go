// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package format keeps a server away from a store that a newer version has written in
// a way which this one cannot read.
//
// A format is a number. It rises only when an older server could not read what a newer one
// writes; a new field of an object is no reason. It rises in two releases: the first one
// reads the new format and continues to write the old one (Reads alone rises), the next one
// writes it (Writes follows). So two neighbouring versions always share a store, and going
// back by one always works.
//
// Protobuf is an exception. The version that reads it writes it too, once all servers of the store
// read it, and the format falls again when no object is stored in it any more.
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
	Reads = 2
	// Writes is the format that this version writes, without protobuf: Reads, or one less.
	Writes = 1
	// Protobuf is the format of a store in which objects may be stored as protobuf.
	Protobuf = 2
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
	_, _, err := Read(ctx, kv, storagePrefix, version)
	return err
}

// Read returns what the store under a prefix in etcd says, and the revision of etcd that wrote it, 0 if
// it says nothing. It returns a *TooNewError if this version does not read the format.
func Read(ctx context.Context, kv clientv3.KV, storagePrefix, version string) (Record, int64, error) {
	return read(ctx, kv, Key(storagePrefix), version)
}

// Write replaces what the store under a prefix in etcd says, if that is still of a revision. It
// reports whether it was.
func Write(ctx context.Context, kv clientv3.KV, storagePrefix string, record Record, revision int64) (bool, error) {
	return write(ctx, kv, Key(storagePrefix), record, revision)
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

// Ensure notes in the store under a prefix in etcd that this version writes to it, and reports whether
// there was nothing in the store. Such a store gets the format ofNew, others Writes at least. Ensure
// returns a *TooNewError, and writes nothing, if the store has a format that this version does not
// read.
func Ensure(ctx context.Context, kv clientv3.KV, storagePrefix, version string, ofNew int) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return ensure(ctx, kv, storagePrefix, Record{Format: Writes, Version: version}, ofNew)
}

func ensure(ctx context.Context, kv clientv3.KV, storagePrefix string, ours Record, ofNew int) (bool, error) {
	key := Key(storagePrefix)
	for {
		stored, revision, err := read(ctx, kv, key, ours.Version)
		if err != nil || revision > 0 && stored.Format >= ours.Format {
			return false, err
		}
		record, isNew := ours, false
		if revision == 0 {
			all, err := kv.Get(ctx, path.Join("/", storagePrefix)+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				return false, fmt.Errorf("counting the keys below %s: %w", storagePrefix, err)
			}
			if all.Count == 0 {
				record.Format, isNew = max(ours.Format, ofNew), true
			}
		}
		// Another server that starts may have come first: then its word is read.
		if written, err := write(ctx, kv, key, record, revision); err != nil || written {
			return isNew && written, err
		}
	}
}

func write(ctx context.Context, kv clientv3.KV, key string, record Record, revision int64) (bool, error) {
	content, err := json.Marshal(record)
	if err != nil {
		return false, fmt.Errorf("encoding the format of the store: %w", err)
	}
	written, err := kv.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(content))).
		Commit()
	if err != nil {
		return false, fmt.Errorf("writing %s: %w", key, err)
	}
	return written.Succeeded, nil
}
