// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"errors"
	"fmt"
	"os"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

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
// Errors are datadir.ErrForeign, datadir.ErrLocked, or say what is wrong with the snapshot.
func Restore(dir string, o RestoreOptions) (err error) {
	data, err := datadir.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	to := (&Server{dir: data}).etcdDir()
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("removing the data before: %w", err)
	}
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
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
		return errors.Join(fmt.Errorf("restoring %s: %w", o.Snapshot, err), os.RemoveAll(to))
	}
	return errors.Join(fsync(to), fsync(data.Path()))
}
