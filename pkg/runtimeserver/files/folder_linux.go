// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// readFolder returns what is in a folder, by name. More than limit are errTooManyEntries.
func readFolder(path string, limit int) ([]fs.DirEntry, error) {
	// Without the flag it would wait for a writer of a named pipe that has taken its name.
	folder, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }() // it was only read
	entries, err := folder.ReadDir(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > limit {
		return nil, errTooManyEntries
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// removeAll is os.RemoveAll, which opens the folder that a path is in as a file, and would wait
// for a writer if that is a named pipe.
func removeAll(path string) error {
	in := filepath.Dir(path)
	folder, err := os.OpenFile(in, unix.O_PATH|unix.O_DIRECTORY, 0)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }() // it was only a place
	opened := "/proc/self/fd/" + strconv.Itoa(int(folder.Fd()))
	err = os.RemoveAll(filepath.Join(opened, filepath.Base(path)))
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		failed.Path = filepath.Join(in, strings.TrimPrefix(failed.Path, opened))
	}
	return err
}
