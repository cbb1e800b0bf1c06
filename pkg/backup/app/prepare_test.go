// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/backup/app"
	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

const sandboxes = "/sandlot/agents.kruise.io/sandboxes/default/"

// startEtcd starts an etcd with the data in a folder.
func startEtcd(t *testing.T, dir string) *clientv3.Client {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// putSandbox stores a sandbox as an API server does.
func putSandbox(t *testing.T, client *clientv3.Client, name string, meta metav1.ObjectMeta) {
	t.Helper()
	sandbox := builders.Sandbox(name)
	sandbox.Namespace, sandbox.UID, sandbox.OwnerReferences = metav1.NamespaceDefault, meta.UID, meta.OwnerReferences
	sandbox.APIVersion, sandbox.Kind = v1alpha1.SchemeGroupVersion.String(), "Sandbox"
	text, err := json.Marshal(sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), sandboxes+name, string(text)); err != nil {
		t.Fatal(err)
	}
}

// saveSnapshot writes a file as "etcdctl snapshot save" does.
func saveSnapshot(t *testing.T, client *clientv3.Client) string {
	t.Helper()
	answer, err := client.SnapshotWithVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(answer.Snapshot)
	path := filepath.Join(t.TempDir(), "snapshot.db")
	if err := errors.Join(err, answer.Snapshot.Close(), os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// prepare runs sandlot restore prepare.
func prepare(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	cmd := app.NewRestoreCommand()
	cmd.SetArgs(append([]string{"prepare"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	return out.String(), cmd.ExecuteContext(t.Context())
}

// TestPrepareSnapshot: an etcd that is not of the install is restored from what the command makes
// of its snapshot, and has no sandbox in a pool and a revision that no client has seen.
func TestPrepareSnapshot(t *testing.T) {
	client := startEtcd(t, filepath.Join(t.TempDir(), "data"))
	putSandbox(t, client, "claimed", metav1.ObjectMeta{})
	putSandbox(t, client, "in-pool", metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", UID: "1", Controller: new(true)},
	}})
	before, err := client.Get(t.Context(), sandboxes, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	snapshot, dir := saveSnapshot(t, client), t.TempDir()
	prepared := filepath.Join(dir, "prepared.db")
	if out, err := prepare(t, snapshot, "--output", prepared); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside the output there are %v, %v", left, err)
	}
	data := t.TempDir()
	if err := embeddedetcd.Restore(t.Context(), data, embeddedetcd.RestoreOptions{Snapshot: prepared}); err != nil {
		t.Fatal(err)
	}
	after, err := startEtcd(t, data).Get(t.Context(), sandboxes, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(after.Kvs) != 1 || string(after.Kvs[0].Key) != sandboxes+"claimed" {
		t.Errorf("the store has %v", after.Kvs)
	}
	if after.Header.Revision < before.Header.Revision+1_000_000_000 {
		t.Errorf("revision %d follows on %d", after.Header.Revision, before.Header.Revision)
	}

	for says, args := range map[string][]string{
		"it must not be there":   {snapshot, "--output", prepared},
		"--output is required":   {snapshot},
		"the backup is damaged":  {damaged(t, snapshot), "--output", filepath.Join(dir, "other.db")},
		"nothing is under /team": {snapshot, "--etcd-prefix", "/team", "--output", filepath.Join(dir, "other.db")},
	} {
		if _, err := prepare(t, args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", args, err, says)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("after what it refused there are %v, %v", left, err)
	}
}

// damaged returns a copy of a snapshot that lacks its end.
func damaged(t *testing.T, snapshot string) string {
	t.Helper()
	content, err := os.ReadFile(snapshot)
	path := filepath.Join(t.TempDir(), "damaged.db")
	if err := errors.Join(err, os.WriteFile(path, content[:len(content)-32], 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}
