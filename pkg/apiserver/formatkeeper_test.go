// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/store/format"
)

// newKeeperStore returns a store of format.Protobuf, which v1 has made.
func newKeeperStore(t *testing.T) *clientv3.Client {
	t.Helper()
	client := newEtcd(t)
	if _, err := format.Ensure(t.Context(), client, "/test", "v1", format.Protobuf); err != nil {
		t.Fatal(err)
	}
	return client
}

// keeper is the formatKeeper of a server, run by a test.
type keeper struct {
	*formatKeeper
	member *membership
	clock  *clocktesting.FakeClock
}

func newKeeper(client *clientv3.Client, mediaType string, clock *clocktesting.FakeClock) *keeper {
	member := newMembership(client, "/test", mediaType, func(string, []string) {})
	return &keeper{&formatKeeper{
		format: &StorageFormat{clock: clock}, mediaType: mediaType, etcd: &etcdConnection{Client: client, prefix: "/test"}, servers: member, clock: clock,
	}, member, clock}
}

// enters puts the server into the list of servers.
func (k *keeper) enters(t *testing.T) {
	t.Helper()
	if _, err := k.member.client.Put(t.Context(), k.member.prefix+k.member.self, ""); err != nil {
		t.Fatal(err)
	}
}

func (k *keeper) leaves(t *testing.T) {
	t.Helper()
	if _, err := k.member.client.Delete(t.Context(), k.member.prefix+k.member.self); err != nil {
		t.Fatal(err)
	}
}

// looks lets the server look, after some time.
func (k *keeper) looks(t *testing.T, after time.Duration) {
	t.Helper()
	k.clock.Step(after)
	if err := k.look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (k *keeper) expectFormat(t *testing.T, want int) {
	t.Helper()
	stored, _, err := format.Read(t.Context(), k.etcd, k.etcd.prefix, "test")
	if err != nil || stored.Format != want {
		t.Errorf("the store has format %d, %v, want %d", stored.Format, err, want)
	}
}

// TestProtobufDuringTheRewrite: the format does not fall after a rewrite during which another server came,
// stored protobuf and went. All is rewritten once more.
func TestProtobufDuringTheRewrite(t *testing.T) {
	client := newKeeperStore(t)
	clock := clocktesting.NewFakeClock(time.Now())
	back, other := newKeeper(client, runtime.ContentTypeJSON, clock), newKeeper(client, runtime.ContentTypeProtobuf, clock)
	rewrites := 0
	back.toJSON = func(context.Context) (int, error) {
		if rewrites++; rewrites > 1 {
			return 0, nil
		}
		other.enters(t)
		other.looks(t, 0)
		if other.format.IsProtobuf() {
			t.Error("a server stores protobuf at once")
		}
		other.looks(t, formatSettle)
		if !other.format.IsProtobuf() {
			t.Error("a server does not store protobuf, though all servers read it")
		}
		other.leaves(t)
		return 0, nil
	}
	back.enters(t)
	back.looks(t, 0)
	clock.Step(formatSettle)
	if err := back.look(t.Context()); err == nil || rewrites != 1 {
		t.Errorf("%d rewrites, %v, want 1 and an error", rewrites, err)
	}
	back.expectFormat(t, format.Protobuf)
	back.looks(t, 0)
	if rewrites != 1 {
		t.Error("the second rewrite began at once")
	}
	back.looks(t, formatSettle)
	if rewrites != 2 {
		t.Errorf("%d rewrites, want 2", rewrites)
	}
	back.expectFormat(t, format.Writes)
}

// TestProtobufOfAServerWithoutALease: a server that is not in the list of servers, but writes still, stores
// JSON before another one rewrites all, also if it does not look at the list. When it is back, it begins
// anew: nothing that it stores is behind a rewrite that ends.
func TestProtobufOfAServerWithoutALease(t *testing.T) {
	for name, looks := range map[string]bool{"it sees that": true, "it waits for etcd": false} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Now())
			client := newKeeperStore(t)
			back, other := newKeeper(client, runtime.ContentTypeJSON, clock), newKeeper(client, runtime.ContentTypeProtobuf, clock)
			back.enters(t)
			other.enters(t)
			other.looks(t, 0)
			for range 20 {
				other.looks(t, formatInterval)
			}
			if !other.format.IsProtobuf() {
				t.Fatal("a server in the list does not store protobuf")
			}
			other.leaves(t) // by the end of its lease
			rewrites := 0
			back.toJSON = func(context.Context) (int, error) {
				rewrites++
				if other.format.IsProtobuf() {
					t.Error("protobuf is stored during a rewrite as JSON")
				}
				other.enters(t)
				other.looks(t, 0)
				if other.format.IsProtobuf() {
					t.Error("protobuf is stored as soon as the server is back")
				}
				return 0, nil
			}
			for range 2 + formatSettle/formatInterval {
				clock.Step(formatInterval)
				if looks {
					other.looks(t, 0)
				}
				if err := back.look(t.Context()); (err != nil) != (rewrites > 0) {
					t.Fatalf("%d rewrites, %v", rewrites, err)
				}
				if rewrites > 0 {
					break
				}
			}
			if rewrites == 0 {
				t.Error("nothing was rewritten")
			}
			back.expectFormat(t, format.Protobuf)
			other.looks(t, formatSettle)
			if !other.format.IsProtobuf() {
				t.Error("the server that is back does not store protobuf")
			}
		})
	}
}

// TestServersThatStartTogether: servers that start on a store of protobuf do not delay each other.
func TestServersThatStartTogether(t *testing.T) {
	client := newKeeperStore(t)
	clock := clocktesting.NewFakeClock(time.Now())
	one, two := newKeeper(client, runtime.ContentTypeProtobuf, clock), newKeeper(client, runtime.ContentTypeProtobuf, clock)
	one.enters(t)
	two.enters(t)
	one.looks(t, 0)
	two.looks(t, 0)
	one.looks(t, formatSettle)
	two.looks(t, 0)
	if !one.format.IsProtobuf() || !two.format.IsProtobuf() {
		t.Errorf("stores protobuf: %t, %t", one.format.IsProtobuf(), two.format.IsProtobuf())
	}
	if stored, _, err := format.Read(t.Context(), client, "/test", "test"); err != nil || stored != (format.Record{Format: format.Protobuf, Version: "v1"}) {
		t.Errorf("got %+v, %v", stored, err)
	}
}
