// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
)

// scratchStore is an etcd in this process, with the data of a snapshot, that no other program uses.
type scratchStore struct {
	*clientv3.Client
	server *embeddedetcd.Server
	dir    string
}

// openScratch starts one in a new folder below scratch, with the revision raised by bump.
func openScratch(ctx context.Context, scratch, snapshot string, bump uint64) (_ *scratchStore, err error) {
	dir, err := os.MkdirTemp(scratch, "etcd-")
	if err != nil {
		return nil, err
	}
	s := &scratchStore{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting an etcd with the snapshot: %w", err), s.Close())
		}
	}()
	if err := embeddedetcd.Restore(dir, embeddedetcd.RestoreOptions{Snapshot: snapshot, RevisionBump: bump}); err != nil {
		return nil, err
	}
	if s.server, err = embeddedetcd.Start(ctx, dir); err != nil {
		return nil, err
	}
	s.Client, err = clientv3.New(clientv3.Config{Endpoints: s.server.Endpoints(), Logger: zap.NewNop(), Context: ctx})
	return s, err
}

// Close stops it and removes its folder.
func (s *scratchStore) Close() error {
	var errs []error
	if s.Client != nil {
		if err := s.Client.Close(); !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
