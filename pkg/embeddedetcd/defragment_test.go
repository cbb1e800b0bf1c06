// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestDefragments writes much, compacts it away, and waits for the file to become small.
func TestDefragments(t *testing.T) {
	s, err := start(t.Context(), t.TempDir(), upkeep{look: 10 * time.Millisecond, rest: 10 * time.Millisecond, free: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer closeServer(t, s)
	client := dial(t, s)
	var revision int64
	for i := range 32 {
		put, err := client.Put(t.Context(), "key", fmt.Sprint(i, strings.Repeat("x", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		revision = put.Header.Revision
	}
	s.etcd.Server.Backend().ForceCommit()
	grown := s.etcd.Server.Backend().Size()
	if grown < 32<<20 {
		t.Fatalf("the file has %d bytes before anything is compacted", grown)
	}
	if _, err := client.Compact(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	for s.etcd.Server.Backend().Size() > 8<<20 {
		// Pages that a write frees count as free after the next write.
		if _, err := client.Put(t.Context(), "other", "small"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := get(t, s, "key"); !strings.HasPrefix(got, "31x") || len(got) != 2+1<<20 {
		t.Errorf("read back %d bytes, %.10q", len(got), got)
	}
	if got := get(t, s, "other"); got != "small" {
		t.Errorf("what was written meanwhile is %q", got)
	}
}

// TestDefragmentsAfterSnapshots: etcd is not defragmented while a client reads a snapshot, for
// which it would have to wait, and then it is.
func TestDefragmentsAfterSnapshots(t *testing.T) {
	s, err := start(t.Context(), t.TempDir(), neverLooked)
	if err != nil {
		t.Fatal(err)
	}
	defer closeServer(t, s)
	client := dial(t, s)
	for i := range 8 { // more than is on the way to a client that reads nothing
		if err := put(t.Context(), client, fmt.Sprint("key", i)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := client.SnapshotWithVersion(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.defragment(); !errors.Is(err, errSnapshotInProgress) {
		t.Errorf("while a snapshot is read: %v", err)
	}
	if err := put(t.Context(), client, "meanwhile"); err != nil {
		t.Error(err)
	}
	cancel()
	for {
		err := s.defragment()
		if err == nil {
			break
		}
		if !errors.Is(err, errSnapshotInProgress) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestWhenToDefragment(t *testing.T) {
	const quota = 8192 * MiB
	for name, test := range map[string]struct {
		size, inUse, quota int64
		lately, want       bool
	}{
		"new":                     {size: MiB, inUse: MiB, quota: quota},
		"little":                  {size: 256 * MiB, inUse: 10 * MiB, quota: quota},
		"enough":                  {size: 266 * MiB, inUse: 10 * MiB, quota: quota, want: true},
		"again":                   {size: 266 * MiB, inUse: 10 * MiB, quota: quota, lately: true},
		"less than there is used": {size: 2000 * MiB, inUse: 1100 * MiB, quota: quota},
		"half of it":              {size: 2000 * MiB, inUse: 1000 * MiB, quota: quota, want: true},
		"small quota":             {size: 50 * MiB, inUse: 10 * MiB, quota: 128 * MiB},
		"small quota, near it":    {size: 100 * MiB, inUse: 40 * MiB, quota: 128 * MiB, lately: true, want: true},
		"near it, of objects":     {size: 100 * MiB, inUse: 60 * MiB, quota: 128 * MiB},
	} {
		if got := defaultUpkeep.worthwhile(test.size, test.inUse, test.quota, !test.lately); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
