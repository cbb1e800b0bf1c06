// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/datadir"
	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

const (
	// storeSuffix ends the names of snapshots of etcd, and answersSuffix those of what the
	// API answered.
	storeSuffix, answersSuffix = ".db.gz", ".json"

	// encryptedPrefix begins the keys of what is encrypted at rest.
	encryptedPrefix = "/encrypted"

	// encryption is a configuration with a key that is no secret.
	encryption = "testdata/encryption.yaml"

	// century is longer than any golden store will be kept.
	century = 100 * 365 * 24 * time.Hour
)

// prefixes are those of the stores in an etcd, with their configurations of encryption.
var prefixes = map[string]string{options.EtcdPrefix: "", encryptedPrefix: encryption}

// at is a server of the store under a prefix. What waits in it does so for as long as it is
// kept.
func at(prefix, encrypted string) testutil.Option {
	return testutil.WithOptions(func(o *options.Options) {
		o.Etcd.StorageConfig.Prefix = prefix
		o.Etcd.EncryptionProviderConfigFilepath = encrypted
		o.ClaimLimits.MaxTimeout, o.ClaimLimits.MaxWaitReadyTimeout = century, century
		o.SyncWindow = time.Millisecond
	})
}

// newest is the path of the last release in testdata, without a suffix.
func newest(t *testing.T) string {
	t.Helper()
	stores, err := filepath.Glob(filepath.Join("testdata", "*"+storeSuffix))
	if err != nil || len(stores) == 0 {
		t.Fatalf("there are no stores in testdata: %v", err)
	}
	return strings.TrimSuffix(slices.MaxFunc(stores, func(a, b string) int {
		return versionOf(a).Compare(versionOf(b))
	}), storeSuffix)
}

type parsedVersion struct{ *utilversion.Version }

func (v parsedVersion) Compare(other parsedVersion) int {
	switch {
	case v.LessThan(other.Version):
		return -1
	case other.LessThan(v.Version):
		return 1
	}
	return 0
}

func versionOf(store string) parsedVersion {
	return parsedVersion{utilversion.MustParseSemantic(strings.TrimSuffix(filepath.Base(store), storeSuffix))}
}

// save writes a snapshot of an etcd into a file. What is no part of the newest revision is
// left out.
func save(t *testing.T, etcd []string, path string) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	now, err := client.Get(t.Context(), "/", clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical()); err != nil && !strings.Contains(err.Error(), "compacted") {
		t.Fatal(err)
	}
	if _, err := client.Defragment(t.Context(), etcd[0]); err != nil {
		t.Fatal(err)
	}
	snapshot, err := client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(packed, snapshot); err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{snapshot, packed, file} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// restore runs an etcd with what a snapshot has, and returns its endpoints.
func restore(t *testing.T, store string) []string {
	t.Helper()
	file, err := os.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	snapshot := filepath.Join(dir, "snapshot.db")
	if err := os.WriteFile(snapshot, content, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), filepath.Join("..", "..", "..", "hack", "tool.sh"), "etcdutl")
	build.Stderr = os.Stderr
	etcdutl, err := build.Output()
	if err != nil {
		t.Fatalf("building etcdutl: %v", err)
	}
	data := filepath.Join(dir, "data")
	marked, err := datadir.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := marked.Close(); err != nil {
		t.Fatal(err)
	}
	const member, url = "sandlot", "http://127.0.0.1:2380" // as embedded etcd calls itself
	out, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(etcdutl)), "snapshot", "restore", snapshot,
		"--data-dir", filepath.Join(data, "etcd"), "--name", member, "--initial-advertise-peer-urls", url,
		"--initial-cluster", member+"="+url).CombinedOutput()
	if err != nil {
		t.Fatalf("restoring %s: %v\n%s", store, err, out)
	}
	etcd, err := embeddedetcd.Start(context.WithoutCancel(t.Context()), data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	})
	return etcd.Endpoints()
}
