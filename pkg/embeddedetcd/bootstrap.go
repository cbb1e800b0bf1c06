// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// unfinishedName is a file beside etcd's folder while etcd makes that folder. An
// etcd that ends between creating its log and writing itself into it as a member
// would wait for ever to be elected at every later start. Nobody has written
// anything into such an etcd, so it is made anew.
const unfinishedName = "etcd.unfinished"

// beginBootstrap makes sure that etcd either finds what a complete start left, or
// nothing. Data that comes from elsewhere, such as a restored backup, has no mark
// and is left alone.
func (s *Server) beginBootstrap() error {
	unfinished := filepath.Join(s.dir.Path(), unfinishedName)
	switch _, err := os.Stat(unfinished); {
	case err == nil:
		if err := os.RemoveAll(s.etcdDir()); err != nil {
			return fmt.Errorf("removing what an interrupted first start left: %w", err)
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("looking for an interrupted first start: %w", err)
	}
	switch _, err := os.Stat(s.etcdDir()); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("looking for data: %w", err)
	}
	if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
		return fmt.Errorf("marking the first start: %w", err)
	}
	return s.sync()
}

// endBootstrap says that etcd is complete. It returns when that cannot be
// forgotten any more, before anybody has a chance to write.
func (s *Server) endBootstrap() error {
	err := os.Remove(filepath.Join(s.dir.Path(), unfinishedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ending the first start: %w", err)
	}
	return s.sync()
}

// sync makes what was made and removed in the data folder outlive a crash of the
// machine.
func (s *Server) sync() error {
	dir, err := os.Open(s.dir.Path())
	if err != nil {
		return err
	}
	return errors.Join(fileutil.Fsync(dir), dir.Close())
}

func (s *Server) etcdDir() string { return filepath.Join(s.dir.Path(), "etcd") }
