// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// unfinished begins the names of files that are being written. What a process left that was
// killed meanwhile is removed by a later write.
const unfinished = ".unfinished-"

// longestWrite is how long a write may last: as long as the Job of a backup. What is unfinished
// and younger may be what another process writes.
const longestWrite = 2 * time.Hour

// folder is a Target that keeps backups as files.
type folder string

var _ Target = folder("")

func (f folder) String() string { return string(f) }

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

// Names implements Target.
func (f folder) Names(context.Context) (map[string]int64, error) {
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return nil, err
	}
	names := map[string]int64{}
	for _, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		names[entry.Name()] = info.Size()
	}
	return names, nil
}

// Write implements Target.
func (f folder) Write(ctx context.Context, name string, content *os.File) error {
	if err := f.clean(); err != nil {
		return err
	}
	to, err := os.OpenFile(f.path(unfinished+name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, readerOf(ctx, content))
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	if err := os.Rename(to.Name(), f.path(name)); err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	if err := f.sync(); err != nil {
		return errors.Join(err, os.Remove(f.path(name)))
	}
	return nil
}

// sync makes sure that the names of files outlast a crash.
func (f folder) sync() error {
	dir, err := os.Open(string(f))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (f folder) clean() error {
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), unfinished) {
			continue
		}
		info, statErr := entry.Info()
		if statErr == nil && (clock.RealClock{}).Since(info.ModTime()) > longestWrite {
			statErr = os.Remove(f.path(entry.Name()))
		}
		if !errors.Is(statErr, fs.ErrNotExist) { // another process was quicker
			err = errors.Join(err, statErr)
		}
	}
	return err
}

// Open implements Target.
func (f folder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	file, err := os.Open(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s in %s: %w", name, f, ErrNoBackup)
	}
	if err != nil {
		return nil, err
	}
	return file, nil
}

// Delete implements Target.
func (f folder) Delete(_ context.Context, name string) error {
	if err := os.Remove(f.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readerOf reads until the context is done.
func readerOf(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
