// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"net"
	"path/filepath"
	"testing"
)

func TestPorts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ports")
	load := func(file string) *ports {
		t.Helper()
		p, err := loadPorts(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.release(); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	get := func(p *ports, name string, wanted int) int {
		t.Helper()
		port, err := p.get(name, wanted)
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	first := load(file)
	a, b := get(first, "a", 0), get(first, "b", 0)
	if a == b || a == 0 || b == 0 {
		t.Errorf("got %d and %d", a, b)
	}
	if again := get(first, "a", 0); again != a {
		t.Errorf("got %d, and %d the next time", a, again)
	}
	if got := get(first, "c", 1234); got != 1234 {
		t.Errorf("wanted 1234, got %d", got)
	}

	beside := load(filepath.Join(t.TempDir(), "ports"))
	copied := load(file) // the same folder, while the first is there
	for _, other := range []*ports{beside, copied} {
		if other.kept.Block == first.kept.Block {
			t.Errorf("two have the block %d", first.kept.Block)
		}
	}
	if err := copied.release(); err != nil {
		t.Fatal(err)
	}

	if err := first.release(); err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address(b))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	second := load(file)
	if got := get(second, "a", 0); got != a {
		t.Errorf("got %d, had %d the last time", got, a)
	}
	if got := get(second, "b", 0); got == b || got == a {
		t.Errorf("got %d, which is in use", got)
	}
}
