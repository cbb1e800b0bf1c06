// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
)

// scratchStore is an etcd in this process, with the data of a snapshot, that no other program uses.
type scratchStore struct {
	*clientv3.Client
	server *embeddedetcd.Server
	dir    string

	cancel   context.CancelFunc
	watching sync.WaitGroup
	// failure is why etcd died. It is written before watching ends.
	failure error
}

// openScratch starts one in a new folder below scratch, with the revision raised by bump. The context is
// for all that is done with it: it ends when etcd dies, which answers nothing then.
func openScratch(ctx context.Context, scratch, snapshot string, bump uint64) (_ context.Context, _ *scratchStore, err error) {
	dir, err := os.MkdirTemp(scratch, "etcd-")
	if err != nil {
		return nil, nil, err
	}
	s := &scratchStore{dir: dir}
	ctx, s.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting an etcd with the snapshot %s: %w", snapshot, err), s.Close())
		}
	}()
	if err := embeddedetcd.Restore(ctx, dir, embeddedetcd.RestoreOptions{Snapshot: snapshot, RevisionBump: bump}); err != nil {
		return nil, nil, err
	}
	if s.server, err = embeddedetcd.Start(ctx, dir); err != nil {
		return nil, nil, err
	}
	s.watching.Go(func() {
		select {
		case err := <-s.server.Failed():
			s.failure = fmt.Errorf("the etcd with the snapshot %s: %w", snapshot, err)
			s.cancel()
		case <-ctx.Done():
		}
	})
	s.Client, err = clientv3.New(clientv3.Config{Endpoints: s.server.Endpoints(), Logger: zap.NewNop(), Context: ctx})
	return ctx, s, err
}

// Close stops it and removes its folder. It returns why etcd died, if it did.
func (s *scratchStore) Close() error {
	s.cancel()
	s.watching.Wait()
	errs := []error{s.failure}
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
