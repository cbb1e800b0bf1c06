// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// write replaces the file atomically by one with these keys.
func (f *File) write(keys map[string]Key) error {
	all := make([]filed, 0, len(keys))
	for _, key := range keys {
		all = append(all, filed{ID: key.ID, Team: key.Team, Name: key.Name, CreatedAt: key.CreatedAt, Ancestors: key.Ancestors, Salt: key.Salt, Hash: key.Hash})
	}
	slices.SortFunc(all, func(a, b filed) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	content, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("file of the API keys: %w", err)
	}
	if err := replaceFile(f.path, append(content, '\n')); err != nil {
		return fmt.Errorf("file of the API keys: %w", err)
	}
	return nil
}

// replaceFile replaces a file by a new one, on the disk too.
func replaceFile(path string, content []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temporary.Name()))
		}
	}()
	_, err = temporary.Write(content)
	if err == nil {
		err = temporary.Sync()
	}
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return err
	}
	// The file is there. Only a crash of the machine could undo it now, and not every system
	// can prevent that.
	if folder, err := os.Open(filepath.Dir(path)); err == nil {
		_ = folder.Sync()
		_ = folder.Close()
	}
	return nil
}
