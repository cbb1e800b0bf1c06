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

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const MiB = 1 << 20

// startFull starts an etcd with a quota of 16 MiB, whose upkeep is often, and writes values
// of 1 MiB to the keys in turn until it refuses them.
func startFull(t *testing.T, keys ...string) *clientv3.Client {
	t.Helper()
	s, err := start(t.Context(), t.TempDir(), upkeep{look: 10 * time.Millisecond, rest: time.Hour, free: 256 * MiB}, WithQuota(16*MiB))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeServer(t, s) })
	client := dial(t, s)
	for i := range 256 {
		err = put(t.Context(), client, keys[i%len(keys)])
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return client
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("256 MiB went into 16 MiB")
	return nil
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

// TestFullOfObjects: what is full of objects refuses writes, takes deletes, and then writes
// again.
func TestFullOfObjects(t *testing.T) {
	var keys []string
	for i := range 256 {
		keys = append(keys, fmt.Sprintf("key-%03d", i))
	}
	client := startFull(t, keys...)
	time.Sleep(100 * time.Millisecond) // some looks
	if err := put(t.Context(), client, "more"); !errors.Is(err, rpctypes.ErrNoSpace) {
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
