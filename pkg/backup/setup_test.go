// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// start is the time of the first backup in a test.
var start = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// store is the store of an API server, which is a Source.
type store struct {
	*clientv3.Client
	transformer value.Transformer
}

func (s *store) Snapshot(ctx context.Context) (io.ReadCloser, int64, error) {
	answer, err := s.SnapshotWithVersion(ctx)
	if err != nil {
		return nil, 0, err
	}
	return answer.Snapshot, 0, nil
}

// snapshot returns a whole snapshot, with its checksum.
func (s *store) snapshot(t *testing.T) []byte {
	t.Helper()
	r, _, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// newStore starts one whose values are encrypted as the configuration in a file says, if it is
// named.
func newStore(t *testing.T, encryptionConfig string) *store {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	write, err := transformers(t.Context(), encryptionConfig)
	if err != nil {
		t.Fatal(err)
	}
	return &store{client, write.TransformerForResource(v1alpha1.Resource("sandboxes"))}
}

const sandboxes = "/sandlot/agents.kruise.io/sandboxes/"

// put stores a sandbox as an API server does: one of a pool, if it has an owner of that kind.
func (s *store) put(t *testing.T, name, owner string) {
	t.Helper()
	sandbox := builders.Sandbox(name)
	sandbox.Namespace, sandbox.UID = "default", types.UID("uid of "+name)
	sandbox.APIVersion, sandbox.Kind = v1alpha1.SchemeGroupVersion.String(), "Sandbox"
	switch owner {
	case "SandboxSet":
		sandbox.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: owner, Name: "pool", UID: "1", Controller: new(true)}}
	case "SandboxWarmPool":
		sandbox.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.ExtensionsGroup + "/v1beta1", Kind: owner, Name: "pool", UID: "1", Controller: new(true)}}
	}
	plain, err := json.Marshal(sandbox)
	if name[len(name)-1]%2 == 0 { // or as an earlier version has stored it
		plain, err = runtime.Encode(apiserver.NewStorageCodec(), sandbox)
	}
	if err != nil {
		t.Fatal(err)
	}
	key := sandboxes + "default/" + name
	data, err := s.transformer.TransformToStorage(t.Context(), plain, value.DefaultContext(key))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), key, string(data)); err != nil {
		t.Fatal(err)
	}
}

// fill stores sandboxes of pools, and some that are handed out.
func (s *store) fill(t *testing.T, inPool, claimed int) {
	t.Helper()
	for i := range inPool {
		s.put(t, fmt.Sprintf("pool-%03d", i), []string{"SandboxSet", "SandboxWarmPool"}[i%2])
	}
	for i := range claimed {
		s.put(t, fmt.Sprintf("claimed-%03d", i), "")
	}
}

// taker takes backups of a store. Its clock stands still until a test steps it.
func taker(t *testing.T, source Source, target Target) (Taker, *testingclock.FakePassiveClock) {
	t.Helper()
	clock := testingclock.NewFakePassiveClock(start)
	return Taker{Source: source, Target: target, Prefix: DefaultPrefix, Scratch: t.TempDir(), Clock: clock}, clock
}

func take(t *testing.T, taker Taker) Backup {
	t.Helper()
	b, contents, err := taker.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if contents.Revision != b.Revision || contents.Keys == 0 {
		t.Errorf("%s has %+v", b.Name, contents)
	}
	checkEmpty(t, taker.Scratch)
	return b
}

// takeBad takes a backup of what Take refuses, because it cannot be read.
func takeBad(t *testing.T, taker Taker) Backup {
	t.Helper()
	if _, _, err := taker.Take(t.Context()); !errors.Is(err, ErrUnreadable) {
		t.Errorf("Take: %v, want %v", err, ErrUnreadable)
	}
	if all, err := List(t.Context(), taker.Target); err != nil || len(all) > 0 {
		t.Errorf("a backup that is not good is kept: %v, %v", all, err)
	}
	b, _, err := taker.take(t.Context(), func(context.Context, *Opened) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, taker.Scratch)
	return b
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("files are left: %v, %v", entries, err)
	}
}

// fetch fetches a backup for the time of a test.
func fetch(t *testing.T, target Target, b Backup) *Opened {
	t.Helper()
	o, err := Fetch(t.Context(), target, b, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// encryptionFileOf writes a configuration with a key.
func encryptionFileOf(t *testing.T, key string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [sandboxes.agents.kruise.io]
  providers:
  - secretbox: {keys: [{name: a, secret: %s}]}
  - identity: {}
`, key)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
