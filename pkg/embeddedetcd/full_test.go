// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	"go.uber.org/zap"
)

const MiB = 1 << 20

var oftenLooked = upkeep{look: 10 * time.Millisecond, rest: time.Hour, free: 256 * MiB}

// startFull starts an etcd with a quota of 16 MiB, whose upkeep is often, and fills it.
func startFull(t *testing.T, keys ...string) *clientv3.Client {
	t.Helper()
	s := startSmall(t, t.TempDir(), oftenLooked)
	t.Cleanup(func() { closeServer(t, s) })
	client := dial(t, s)
	fillUp(t, client, keys...)
	return client
}

// startSmall starts an etcd with a quota of 16 MiB.
func startSmall(t *testing.T, dir string, u upkeep) *Server {
	t.Helper()
	s, err := start(t.Context(), dir, u, WithQuota(16*MiB))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fillUp writes values of 1 MiB to the keys in turn until etcd refuses them.
func fillUp(t *testing.T, client *clientv3.Client, keys ...string) {
	t.Helper()
	for i := range 256 {
		err := put(t.Context(), client, keys[i%len(keys)])
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("256 MiB went into 16 MiB")
}

func put(ctx context.Context, client *clientv3.Client, key string) error {
	_, err := client.Put(ctx, key, strings.Repeat("x", MiB))
	return err
}

// awaitRoom returns when a write is taken.
func awaitRoom(t *testing.T, client *clientv3.Client, key string) {
	t.Helper()
	for {
		err := put(t.Context(), client, key)
		if err == nil {
			return
		}
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestFullOfHistory: what is full of old revisions makes room by itself.
func TestFullOfHistory(t *testing.T) {
	client := startFull(t, "key")
	awaitRoom(t, client, "key")
	awaitRoom(t, client, "other")
	all, err := client.Get(t.Context(), "", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil || all.Count != 2 {
		t.Errorf("%v keys, %v", all, err)
	}
}

// neverLooked is upkeep that does nothing in a test.
var neverLooked = upkeep{look: time.Hour}

// TestRestoredFull: what is restored from a snapshot of a full etcd makes room as any other,
// though its alarm is of a member that is no more.
func TestRestoredFull(t *testing.T) {
	s := startSmall(t, t.TempDir(), neverLooked)
	client := dial(t, s)
	fillUp(t, client, "key")
	member, file := s.etcd.Server.MemberID(), filepath.Join(t.TempDir(), "snapshot.db")
	if _, err := snapshot.SaveWithVersion(t.Context(), zap.NewNop(), clientv3.Config{Endpoints: s.Endpoints()}, file); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)

	dir := t.TempDir()
	if err := Restore(dir, RestoreOptions{Snapshot: file}); err != nil {
		t.Fatal(err)
	}
	s = startSmall(t, dir, oftenLooked)
	defer closeServer(t, s)
	if s.etcd.Server.MemberID() == member {
		t.Fatal("it is the same member, and this tests nothing")
	}
	awaitRoom(t, dial(t, s), "key")
}

// TestFullAndCompacted: what was compacted before a restart makes room after it.
func TestFullAndCompacted(t *testing.T) {
	dir := t.TempDir()
	s := startSmall(t, dir, neverLooked)
	client := dial(t, s)
	fillUp(t, client, "key")
	if _, err := client.Compact(t.Context(), s.etcd.Server.KV().Rev(), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)
	s = startSmall(t, dir, oftenLooked)
	defer closeServer(t, s)
	awaitRoom(t, dial(t, s), "key")
}

// TestFullOfObjects: what is full of objects refuses writes, takes deletes, and then writes
// again.
func TestFullOfObjects(t *testing.T) {
	var keys []string
	for i := range 256 {
		keys = append(keys, fmt.Sprintf("key-%03d", i))
	}
	client := startFull(t, keys...)
	// Where the file had many free pages, there is room again, for some more of them.
	const rounds, ofRound = 10, 20
	var err error
	for round := range rounds {
		time.Sleep(100 * time.Millisecond) // some looks
		if err = put(t.Context(), client, "more"); err != nil {
			break
		}
		fillUp(t, client, keys[(round+1)*ofRound:]...)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("a write to a full etcd: %v", err)
	}
	if _, err := client.Delete(t.Context(), "key-001", clientv3.WithRange("key-999")); err != nil {
		t.Fatal(err)
	}
	awaitRoom(t, client, "more")
	all, err := client.Get(t.Context(), "key-", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(all.Kvs) != 1 || string(all.Kvs[0].Key) != "key-000" {
		t.Errorf("of the one object that was not deleted there is %v, %v", all, err)
	}
}

// TestFullAndNotDefragmented: an etcd that is full refuses writes until its file has become
// smaller. The folder of the file is away, so that no other can be written there.
func TestFullAndNotDefragmented(t *testing.T) {
	s := startSmall(t, t.TempDir(), neverLooked)
	defer closeServer(t, s)
	client := dial(t, s)
	fillUp(t, client, "key")
	folder := filepath.Join(s.etcdDir(), "member", "snap")
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	s.makeRoom(t.Context(), s.alarms())
	if len(s.alarms()) == 0 {
		t.Error("it takes writes, and its file is as large as before")
	}
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	s.makeRoom(t.Context(), s.alarms())
	if alarms := s.alarms(); len(alarms) > 0 {
		t.Errorf("its file can be written, and it refuses writes: %v", alarms)
	}
	if err := put(t.Context(), client, "key"); err != nil {
		t.Error(err)
	}
}
