// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is a control plane that the tests of a package share. The first that asks starts
// it. The zero value is good.
type Shared struct {
	once sync.Once
	dir  string
	c    *ControlPlane
	err  error
}

// Get returns it.
func (s *Shared) Get(t *testing.T) *ControlPlane {
	t.Helper()
	s.once.Do(func() {
		//nolint:usetesting // it outlives the test that comes first
		if s.dir, s.err = os.MkdirTemp("", "controlplane"); s.err != nil {
			return
		}
		s.c, s.err = Start(context.Background(), Options{Dir: s.dir, Nodes: 1, ForTests: true})
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.c
}

// Main runs the tests of a package, stops what they shared, and returns the exit code.
func (s *Shared) Main(m *testing.M) int {
	code := m.Run()
	if s.c != nil {
		if err := s.c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
	return code
}
