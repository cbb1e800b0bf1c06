// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"

	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// startSmall starts an etcd that is soon full.
func startSmall(t *testing.T) (*kubernetes.Client, *etcdtxn.Client) {
	t.Helper()
	config := testserver.NewTestConfig(t)
	config.QuotaBackendBytes = 8 << 20
	etcd := testserver.RunEtcd(t, config)
	closeAtEnd(t, etcd)
	return etcd, etcdtxn.NewClient(etcd.KV)
}

// fill writes until etcd refuses it.
func fill(t *testing.T, etcd *kubernetes.Client) {
	t.Helper()
	for range 64 {
		_, err := etcd.KV.Put(t.Context(), "/filler", strings.Repeat("x", 1<<20))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("64 MiB went into 8 MiB")
}

// makeRoom lets a full etcd take writes again.
func makeRoom(t *testing.T, etcd *kubernetes.Client) {
	t.Helper()
	_, compacted := etcd.Compact(t.Context(), revision(t, etcd.KV), clientv3.WithCompactPhysical())
	_, defragmented := etcd.Defragment(t.Context(), etcd.Endpoints()[0])
	_, disarmed := etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	if err := errors.Join(compacted, defragmented, disarmed); err != nil {
		t.Fatal(err)
	}
}

// TestSettleInAFullEtcd: a transaction that etcd refused for want of space is settled
// without a write, which etcd would refuse as well.
func TestSettleInAFullEtcd(t *testing.T) {
	etcd, client := startSmall(t)
	claims := newKind(t, etcd, kindOptions{resource: "/claims"})
	boxes := newKind(t, etcd, kindOptions{resource: "/boxes"})
	at := boxes.create(t, client, "box")
	guards := etcdtxn.NewGuards(etcd.Lease, "/guards/")
	used, err := guarded(t, etcd, guards, "before", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	used.Release(guards)
	late := newUnanswered(t, etcd, before, 1, nil)
	fill(t, etcd)
	refused := func(t *testing.T, txn *etcdtxn.Txn) {
		t.Helper()
		if err := txn.Commit(t.Context()); !errors.Is(err, etcdtxn.ErrUnknownOutcome) || !errors.Is(err, etcdtxn.ErrNoSpace) {
			t.Fatalf("Commit() = %v", err)
		}
		unchanged(t, etcd.KV, func() {
			for range 2 {
				if written, err := txn.Settle(t.Context(), late.isOurs); written || err != nil {
					t.Errorf("Settle() = %t, %v", written, err)
				}
			}
		})
	}
	t.Run("by an object", func(t *testing.T) {
		txn := client.Txn()
		mustAdd(t, txn.Create(t.Context(), claims.Resource, claims.key("mine"), pod("mine")))
		mustAdd(t, txn.Update(t.Context(), boxes.Resource, boxes.key("box"), pod("box"), at))
		refused(t, txn)
	})
	t.Run("by a guard", func(t *testing.T) {
		txn := client.Txn()
		mustAdd(t, txn.Create(t.Context(), claims.Resource, claims.key("mine"), pod("mine")))
		mustAdd(t, txn.Guard(t.Context(), guards, "token", time.Now()))
		refused(t, txn)
		t.Run("and by another", func(t *testing.T) { // which cannot be written
			other := client.Txn()
			mustAdd(t, other.Create(t.Context(), claims.Resource, claims.key("mine"), pod("mine")))
			mustAdd(t, other.Guard(t.Context(), guards, "another token", time.Now()))
			if err := other.Commit(t.Context()); !errors.Is(err, etcdtxn.ErrNoSpace) || errors.Is(err, etcdtxn.ErrUnknownOutcome) {
				t.Errorf("Commit() = %v", err)
			}
		})
	})
	t.Run("without a lease for guards", func(t *testing.T) {
		txn := client.Txn()
		err := txn.Guard(t.Context(), etcdtxn.NewGuards(etcd.Lease, "/more-guards/"), "token", time.Now())
		if !errors.Is(err, etcdtxn.ErrNoSpace) || errors.Is(err, etcdtxn.ErrUnknownOutcome) {
			t.Errorf("Guard() = %v", err)
		}
	})
	t.Run("one that may be on its way", func(t *testing.T) {
		// It may be written once there is room.
		if written, err := late.Settle(t.Context(), late.isOurs); written || !errors.Is(err, etcdtxn.ErrNoSpace) || errors.Is(err, etcdtxn.ErrNotSettled) {
			t.Errorf("Settle() = %t, %v", written, err)
		}
		if err := late.Commit(t.Context()); !errors.Is(err, etcdtxn.ErrNoSpace) { // says nothing of the first
			t.Errorf("Commit() = %v", err)
		}
		if written, err := late.Settle(t.Context(), late.isOurs); written || !errors.Is(err, etcdtxn.ErrNoSpace) {
			t.Errorf("Settle() = %t, %v", written, err)
		}
		makeRoom(t, etcd)
		late.expectSettled(false)
		late.expectNever()
	})
}
