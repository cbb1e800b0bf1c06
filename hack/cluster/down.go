// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// down stops what up has started, and returns when all of it has ended.
func down(ctx context.Context, o options) error {
	var err error
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	s, err := readState(o.dir)
	if err != nil {
		return err
	}
	if s == nil {
		fmt.Println("No cluster is running in", o.dir)
	} else {
		if err := forget(ctx, o.dir, s); err != nil {
			return err
		}
		fmt.Println("The cluster has stopped.")
	}
	if o.clean {
		return remove(o.dir)
	}
	return nil
}

// forget stops all that is noted and removes the note. The one in the background
// stops the others, unless it was killed.
func forget(ctx context.Context, dir string, s *state) error {
	for _, p := range append([]process{s.Server}, s.Children...) {
		if err := p.stop(ctx, dir); err != nil {
			return err
		}
	}
	if err := os.Remove(stateFile(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
