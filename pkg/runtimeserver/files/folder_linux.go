// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
)

// readFolder returns what is in a folder, by name. More than limit are errTooManyEntries.
func readFolder(path string, limit int) ([]fs.DirEntry, error) {
	folder, err := os.Open(path)
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
