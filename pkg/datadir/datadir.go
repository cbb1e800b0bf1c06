// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package datadir guards a folder that holds a program's data: it is made if
// it is missing, is refused if it holds something else, and is held by one
// process at a time.
package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

const (
	markerName    = ".sandlot"
	markerContent = "sandlot data folder, format 1\n"
)

var (
	// ErrForeign means that the folder holds data that is not Sandlot's, or is
	// of a format that this program does not know. Nothing was changed in it.
	ErrForeign = errors.New("the folder is not a data folder of this version of Sandlot")
	// ErrLocked means that another process uses the folder.
	ErrLocked = errors.New("another process is using the folder")
)

// Dir is a data folder that this process holds.
type Dir struct {
	path string
	lock *fileutil.LockedFile
}

// Open takes hold of the folder at path and marks it as Sandlot's if it is
// new. A folder with contents but without the mark is refused with ErrForeign:
// a mistyped path must not put a database into a home folder.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := checkContents(path); err != nil {
		return nil, err
	}
	lock, err := fileutil.TryLockFile(filepath.Join(path, markerName), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("data folder %s: %w", path, ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("data folder %s: %w", path, err)
	}
	if err := mark(lock.File); err != nil {
		return nil, errors.Join(fmt.Errorf("data folder %s: %w", path, err), lock.Close())
	}
	return &Dir{path: path, lock: lock}, nil
}

// Path is the absolute path of the folder.
func (d *Dir) Path() string { return d.path }

// Close lets another process have the folder.
func (d *Dir) Close() error {
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("data folder %s: %w", d.path, err)
	}
	return nil
}

// checkContents refuses a folder that has contents but no mark. What a fresh
// file system holds of itself does not count.
func checkContents(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	foreign := ""
	for _, entry := range entries {
		switch entry.Name() {
		case markerName:
			return nil
		case "lost+found":
		default:
			foreign = entry.Name()
		}
	}
	if foreign != "" {
		return fmt.Errorf("data folder %s holds %q: %w", path, foreign, ErrForeign)
	}
	return nil
}

// mark writes the mark into an empty file, and checks it otherwise. The file
// is empty if it was just made, or if a process died right after making it.
func mark(f *os.File) error {
	content, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return fmt.Errorf("reading %s: %w", markerName, err)
	}
	switch string(content) {
	case markerContent:
		return nil
	case "":
		if _, err := f.WriteAt([]byte(markerContent), 0); err != nil {
			return fmt.Errorf("writing %s: %w", markerName, err)
		}
		return f.Sync()
	default:
		return fmt.Errorf("%s says %q: %w", markerName, content, ErrForeign)
	}
}
