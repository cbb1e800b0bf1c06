// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apiserver/pkg/apis/example"

	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// TestExpect: an object that is only looked at stays as it is, and lets the transaction
// fail when it has moved or is gone.
func TestExpect(t *testing.T) {
	etcd, client := start(t)
	pods := newKind(t, etcd, kindOptions{resource: "/pods"})
	first := pods.create(t, client, "seen", "changed")
	try := func(seen, changed int64) (*example.Pod, error) {
		t.Helper()
		txn, p := client.Txn(), pod("changed")
		mustAdd(t, txn.Expect(pods.Resource, pods.key("seen"), seen))
		mustAdd(t, txn.Update(t.Context(), pods.Resource, pods.key("changed"), p, changed))
		if txn.Len() != 2 || txn.Bytes() == 0 {
			t.Errorf("holds %d, %d bytes", txn.Len(), txn.Bytes())
		}
		return p, txn.Commit(t.Context())
	}
	changed, err := try(first, first)
	if err != nil {
		t.Fatal(err)
	}
	if kv := raw(t, etcd.KV, "/registry/pods/ns/seen"); kv.ModRevision != first {
		t.Errorf("it was written at %d, and is at %d now", first, kv.ModRevision)
	}
	at := version(t, changed)
	moved := version(t, pods.update(t, "seen", func(p *example.Pod) { p.Generation++ }))
	_, err = try(first, at)
	var conflict *etcdtxn.ConflictError
	if !errors.As(err, &conflict) {
		t.Fatalf("after it moved: %v", err)
	}
	if diff := cmp.Diff([]etcdtxn.Modified{{Index: 0, ModRevision: moved}}, conflict.Modified); diff != "" {
		t.Errorf("moved (-want +got):\n%s", diff)
	}
	pods.remove(t, "seen")
	if _, err := try(moved, at); !errors.As(err, &conflict) || conflict.Modified[0] != (etcdtxn.Modified{}) {
		t.Errorf("after it was deleted: %v", err)
	}
	if err := client.Txn().Expect(pods.Resource, pods.key("seen"), 0); err == nil {
		t.Error("no revision was taken")
	}
}
