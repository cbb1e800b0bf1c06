// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestDefragmentsAfterSnapshots checks that a defragmentation is rejected while a client reads a
// snapshot, for which etcd would have to wait, and succeeds afterwards.
func TestDefragmentsAfterSnapshots(t *testing.T) {
	s, err := Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer closeServer(t, s)
	client := dial(t, s)
	write := func(key string) {
		t.Helper()
		if _, err := client.Put(t.Context(), key, strings.Repeat("x", 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 { // more than the buffers between etcd and a client that reads nothing
		write(fmt.Sprint("key", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := client.SnapshotWithVersion(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Defragment(t.Context(), s.Endpoints()[0]); status.Code(err) != codes.Unavailable {
		t.Errorf("while a snapshot is read: %v", err)
	}
	write("meanwhile")
	cancel()
	for {
		_, err := client.Defragment(t.Context(), s.Endpoints()[0])
		if err == nil {
			break
		}
		if status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
