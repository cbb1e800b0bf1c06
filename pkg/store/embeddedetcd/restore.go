// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"

	"github.com/sandlot-io/sandlot/pkg/datadir"
)

// RestoreOptions say what an etcd is made of.
type RestoreOptions struct {
	// Snapshot is the file of a snapshot, as etcd gives it, with its checksum at the end.
	Snapshot string
	// RevisionBump is added to the revision of the snapshot, and all that was before
	// counts as compacted. 0 leaves both as they are.
	RevisionBump uint64
}

// Restore makes a snapshot the data of the etcd in dir, in place of the data that is there.
// Nothing else in the folder is changed. A damaged snapshot is an error, and then there is
// no data.
//
// Errors are datadir.ErrForeign, datadir.ErrLocked, or say what is wrong with the snapshot. After an
// error etcd may have left goroutines and locks behind: the process is expected to end.
func Restore(ctx context.Context, dir string, o RestoreOptions) (err error) {
	data, err := datadir.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	to := (&Server{dir: data}).etcdDir()
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("removing the data before: %w", err)
	}
	err = RestoreMember(ctx, snapshot.RestoreConfig{
		SnapshotPath:        o.Snapshot,
		Name:                memberName,
		OutputDataDir:       to,
		PeerURLs:            []string{peerURL},
		InitialCluster:      memberName + "=" + peerURL,
		InitialClusterToken: "sandlot",
		RevisionBump:        o.RevisionBump,
		MarkCompacted:       o.RevisionBump > 0,
	})
	if err != nil {
		return errors.Join(err, os.RemoveAll(to))
	}
	return errors.Join(fsync(to), fsync(data.Path()))
}

// RestoreMember makes of a snapshot the data of a member of any etcd, as "etcdutl snapshot restore" does.
// What etcd finds wrong with the snapshot is an error, also where etcdutl would panic or exit. See Restore for
// what it leaves behind then.
func RestoreMember(ctx context.Context, config snapshot.RestoreConfig) error {
	f := newFailure()
	_, err := guard(ctx, f, func() (struct{}, error) {
		return struct{}{}, snapshot.NewV3(f.logger()).Restore(config)
	})
	if err != nil {
		return fmt.Errorf("restoring %s: %w", config.SnapshotPath, err)
	}
	return nil
}

// SnapshotStatus returns what is in the file of a snapshot, as "etcdutl snapshot status" does. What
// etcd finds wrong with it is an error, as with RestoreMember.
func SnapshotStatus(ctx context.Context, path string) (snapshot.Status, error) {
	f := newFailure()
	return guard(ctx, f, func() (snapshot.Status, error) { return snapshot.NewV3(f.logger()).Status(path) })
}
