// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestCompactionNeedsLittleSpace checks that the file hardly grows while etcd compacts revisions whose
// neighbours stay. An etcd near its quota would otherwise run out of space by a compaction.
func TestCompactionNeedsLittleSpace(t *testing.T) {
	const keys, perTransaction = 8000, 100
	s, err := Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer closeServer(t, s)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	}()
	put := func(step int, value string) int64 {
		t.Helper()
		var revision int64
		for from := 0; from < keys; from += perTransaction {
			var puts []clientv3.Op
			for i := from; i < from+perTransaction; i += step {
				puts = append(puts, clientv3.OpPut(fmt.Sprintf("key-%06d", i), value))
			}
			resp, err := etcd.Txn(t.Context()).Then(puts...).Commit()
			if err != nil {
				t.Fatal(err)
			}
			revision = resp.Header.Revision
		}
		return revision
	}
	size := func() int64 {
		t.Helper()
		status, err := etcd.Status(t.Context(), s.Endpoints()[0])
		if err != nil {
			t.Fatal(err)
		}
		return status.DbSize
	}
	put(1, strings.Repeat("x", 3000))
	revision := put(2, "short") // every second large value is history
	before := size()
	if _, err := etcd.Compact(t.Context(), revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	grown := size() - before
	t.Logf("the file of %d KiB grew by %d KiB", before>>10, grown>>10)
	if grown > before/20 {
		t.Errorf("the file of %d bytes grew by %d", before, grown)
	}
}
