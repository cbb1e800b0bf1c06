// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sandlot-io/sandlot/pkg/store/format"
	"github.com/sandlot-io/sandlot/pkg/version"
)

// leastBump is how much the revision is raised at least.
const leastBump = 1_000_000_000

// Prepared is a snapshot that a store may start with.
type Prepared struct {
	// Path is its file, and SHA256 is that of the file, in hexadecimal digits.
	Path, SHA256 string
	// Revision is that of the store with it.
	Revision int64
	// Emptied is how many sandboxes were in pools.
	Emptied int
	// Breach is ErrInvariants if the store breaks some. Such a store is better than none.
	Breach error
}

// Check restores a backup into an etcd of its own below scratch. It is ErrUnreadable or
// ErrInvariants if the store there, under a prefix, is not well.
func Check(ctx context.Context, o *Opened, scratch, prefix string) (err error) {
	snapshot := o.Snapshot()
	ctx, store, err := openScratch(ctx, scratch, snapshot.Path, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	read, err := transformers(ctx, snapshot.EncryptionConfig)
	if err != nil {
		return err
	}
	return checkInvariants(ctx, store, prefix, read, o.Contents.Taken)
}

// Prepare makes of a snapshot the one that the store is restored from, in a file below
// scratch. It is a *storeformat.TooNewError if this version does not read that store. What is
// different:
//
//   - The pools are empty. A sandbox that was in one may have been handed out since.
//   - The revision is one that no client has seen, and all before counts as compacted. A
//     client that would continue watching at a revision of the lost past lists again.
//   - etcd has no alarms. They were of members of the past.
func Prepare(ctx context.Context, s Snapshot, scratch, prefix string, now time.Time) (p Prepared, err error) {
	ctx, store, err := openScratch(ctx, scratch, s.Path, revisionBump(s.Revision, now))
	if err != nil {
		return Prepared{}, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if _, err := store.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return Prepared{}, fmt.Errorf("disarming alarms: %w", err)
	}
	if err := format.Check(ctx, store, prefix, version.Get()); err != nil {
		return Prepared{}, err
	}
	read, err := transformers(ctx, s.EncryptionConfig)
	if err != nil {
		return Prepared{}, err
	}
	if p.Emptied, err = emptyPools(ctx, store, prefix, read); err != nil {
		return Prepared{}, fmt.Errorf("emptying the pools: %w", err)
	}
	err = checkInvariants(ctx, store, prefix, read, now)
	if errors.Is(err, ErrInvariants) {
		p.Breach, err = err, nil
	}
	if err != nil {
		return Prepared{}, err
	}
	file, err := os.CreateTemp(scratch, "prepared-")
	if err != nil {
		return Prepared{}, err
	}
	if err := file.Close(); err != nil {
		return Prepared{}, err
	}
	p.Path = file.Name()
	if p.SHA256, err = save(ctx, store, p.Path); err != nil {
		return Prepared{}, fmt.Errorf("taking the prepared snapshot: %w", err)
	}
	status, err := inspect(ctx, p.Path)
	p.Revision = status.Revision
	return p, err
}

// revisionBump is what is added to a revision, so that it is beyond all that were ever there:
// after a restore a revision is the time in microseconds, and no store writes so often that
// it gets ahead of that.
func revisionBump(revision int64, now time.Time) uint64 {
	return uint64(max(now.UnixMicro()-revision, leastBump))
}

// save writes a snapshot of a store to a file, and returns the SHA-256 of the file.
func save(ctx context.Context, etcd clientv3.Maintenance, path string) (string, error) {
	answer, err := etcd.SnapshotWithVersion(ctx)
	if err != nil {
		return "", err
	}
	sum, err := WriteFile(path, answer.Snapshot)
	return sum, errors.Join(err, answer.Snapshot.Close())
}
