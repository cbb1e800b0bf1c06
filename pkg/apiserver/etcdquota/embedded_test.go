// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"context"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	"go.uber.org/zap"

	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
)

// startEmbedded starts an embedded etcd with a quota of 32 MiB on a folder. stop stops it.
func startEmbedded(t *testing.T, dir string) (m *maintained, stop func()) {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), dir, embeddedetcd.WithQuota(32*mebibyte))
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	m = maintain(client)
	m.Embedded = true
	return m, func() {
		t.Helper()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRecoversAfterRestore checks that an etcd that is restored from a snapshot of a full one is
// recovered, although its alarm is of a member that no longer exists.
func TestRecoversAfterRestore(t *testing.T) {
	m, stop := startEmbedded(t, t.TempDir())
	m.fill(t, oneKey)
	id, file := memberStatuses(t.Context(), m.Etcd)[0].id(), filepath.Join(t.TempDir(), "snapshot.db")
	if _, err := snapshot.SaveWithVersion(t.Context(), zap.NewNop(), clientv3.Config{Endpoints: m.etcd.Endpoints()}, file); err != nil {
		t.Fatal(err)
	}
	stop()
	dir := t.TempDir()
	if err := embeddedetcd.Restore(t.Context(), dir, embeddedetcd.RestoreOptions{Snapshot: file}); err != nil {
		t.Fatal(err)
	}
	m, stop = startEmbedded(t, dir)
	defer stop()
	if memberStatuses(t.Context(), m.Etcd)[0].id() == id {
		t.Fatal("it is the same member, so this tests nothing")
	}
	if !m.full(t) {
		t.Fatal("it is not full, so this tests nothing")
	}
	if m.Sync(t.Context()); m.full(t) {
		t.Error("it is still full")
	}
}

// TestRecoversAfterRestart checks that an etcd that was full, and compacted, before a restart is
// recovered.
func TestRecoversAfterRestart(t *testing.T) {
	dir := t.TempDir()
	m, stop := startEmbedded(t, dir)
	m.fill(t, oneKey)
	if err := compact(t.Context(), m.Etcd, memberStatuses(t.Context(), m.Etcd).revision()); err != nil {
		t.Fatal(err)
	}
	stop()
	m, stop = startEmbedded(t, dir)
	defer stop()
	if !m.full(t) {
		t.Fatal("it is not full, so this tests nothing")
	}
	if m.Sync(t.Context()); m.full(t) {
		t.Error("it is still full")
	}
}

// TestRecoversAfterSnapshot checks that an embedded etcd that is full answers while a snapshot is
// read, and is recovered later.
func TestRecoversAfterSnapshot(t *testing.T) {
	m, stop := startEmbedded(t, t.TempDir())
	defer stop()
	m.fill(t, oneKey)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := m.etcd.SnapshotWithVersion(ctx); err != nil {
		t.Fatal(err)
	}
	if m.Sync(t.Context()); !m.full(t) {
		t.Fatal("it was defragmented while a snapshot was read")
	}
	cancel()
	waitFor(t, func() bool { // until etcd notices that the snapshot is no longer read
		m.clock.Step(failedDefragmentPause)
		m.Sync(t.Context())
		return !m.full(t)
	})
}
