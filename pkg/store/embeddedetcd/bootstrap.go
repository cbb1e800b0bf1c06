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
	"k8s.io/klog/v2"
)

// unfinishedName is a file in etcd's folder while etcd makes what is in there. An
// etcd that ends between creating its log and writing itself into it as a member
// would wait for ever to be elected at every later start. Nothing has been written
// into such an etcd, so it is made anew.
const unfinishedName = "sandlot.unfinished"

// beginBootstrap makes sure that etcd either finds what a complete start left, or
// nothing. Data that comes from elsewhere, such as a restored backup, has no mark
// and is left alone.
func (s *Server) beginBootstrap() error {
	_, err := os.Stat(s.unfinished())
	switch {
	case err == nil:
		klog.InfoS("Restarting the first start, which was interrupted", "folder", s.etcdDir())
		if err := os.RemoveAll(s.etcdDir()); err != nil {
			return fmt.Errorf("removing what an interrupted first start left: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("looking for an interrupted first start: %w", err)
	}
	// Made with its mark: the folder is there under its name only once it has it.
	if _, err := os.Stat(s.etcdDir()); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fresh := s.etcdDir() + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("removing what an interrupted first start left: %w", err)
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return fmt.Errorf("making a folder for etcd: %w", err)
	}
	if err := os.WriteFile(filepath.Join(fresh, unfinishedName), nil, 0o600); err != nil {
		return fmt.Errorf("marking the first start: %w", err)
	}
	if err := errors.Join(fsync(fresh), os.Rename(fresh, s.etcdDir())); err != nil {
		return fmt.Errorf("making a folder for etcd: %w", err)
	}
	return fsync(s.dir.Path())
}

// endBootstrap says that etcd is complete. It returns when that cannot be
// forgotten any more, before any client can write.
func (s *Server) endBootstrap() error {
	err := os.Remove(s.unfinished())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ending the first start: %w", err)
	}
	return fsync(s.etcdDir())
}

// fsync makes what was made and removed in a folder outlive a crash of the machine.
func fsync(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(fileutil.Fsync(dir), dir.Close())
}

func (s *Server) unfinished() string { return filepath.Join(s.etcdDir(), unfinishedName) }

func (s *Server) etcdDir() string { return filepath.Join(s.dir.Path(), "etcd") }
