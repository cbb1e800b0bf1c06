// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// profileSeconds is about as long as a round. What is longer is idle time, which
// does not show.
const profileSeconds = "4"

var fileName = strings.NewReplacer("/", "-", " ", "-")

// profileOf returns a function that begins a CPU profile of the server, which is
// kept in folder by the function that it returns in turn. nil without a folder.
func profileOf(s *server, folder, name string) func(context.Context) func() error {
	if folder == "" {
		return nil
	}
	return func(ctx context.Context) func() error {
		var wg sync.WaitGroup
		var data []byte
		var err error
		wg.Go(func() {
			data, err = s.get(ctx, "/debug/pprof/profile", map[string]string{"seconds": profileSeconds})
		})
		return func() error {
			wg.Wait()
			if err != nil {
				return fmt.Errorf("profile: %w", err)
			}
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return fmt.Errorf("profile: %w", err)
			}
			return os.WriteFile(filepath.Join(folder, fileName.Replace(name)+".pprof"), data, 0o644)
		}
	}
}
