// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
)

// offered is a restore that a Job offers.
type offered struct {
	secret string // its folder
	from   string
}

// offer serves a snapshot for the time of a test, and writes what the Secret says of it.
func offer(t *testing.T, id, snapshot string, change func(secret map[string]string)) offered {
	t.Helper()
	s, err := newServer("127.0.0.1:0", snapshot)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group errgroup.Group
	group.Go(func() error { return s.run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	content, err := os.ReadFile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	secret := map[string]string{keyID: id, keyToken: s.token, keyCA: string(s.ca), keySHA256: hex.EncodeToString(sum[:])}
	if change != nil {
		change(secret)
	}
	dir := t.TempDir()
	for name, text := range secret {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return offered{dir, "https://" + s.listener.Addr().String()}
}

// snapshotOf returns a snapshot of a store with a value under "key".
func snapshotOf(t *testing.T, value string) string {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	client := connect(t, server.Endpoints()[0])
	defer server.Close()
	defer client.Close()
	if _, err := client.Put(t.Context(), "key", value); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "snapshot.db")
	if _, err := snapshot.SaveWithVersion(t.Context(), zap.NewNop(), clientv3.Config{Endpoints: server.Endpoints()}, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func connect(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// embedded is a member inside an API server, on a volume of a test.
func embedded(t *testing.T, o offered) Member {
	t.Helper()
	dir := t.TempDir()
	return Member{SecretDir: o.secret, From: o.from, EmbeddedDir: filepath.Join(dir, "data"), TerminationLog: filepath.Join(t.TempDir(), "log")}
}

// read starts the member and returns what it has under "key".
func read(t *testing.T, m Member) string {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), m.EmbeddedDir)
	if err != nil {
		t.Fatal(err)
	}
	client := connect(t, server.Endpoints()[0])
	defer server.Close()
	defer client.Close()
	answer, err := client.Get(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) == 0 {
		return ""
	}
	return string(answer.Kvs[0].Value)
}

func TestMember(t *testing.T) {
	first := offer(t, "one", snapshotOf(t, "first"), nil)
	m := embedded(t, first)
	said := func() string {
		text, err := os.ReadFile(m.TerminationLog)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, step := range []struct {
		what      string
		secret    string
		from      string
		want, say string
	}{
		{"nothing is offered", t.TempDir(), "", "", ""},
		{"the Secret is not there", filepath.Join(t.TempDir(), "none"), "", "", ""},
		{"a restore", first.secret, first.from, "first", "one"},
		{"it was restored, and the Job is gone", first.secret, "https://127.0.0.1:1", "first", "one"},
	} {
		m.SecretDir, m.From = step.secret, step.from
		if err := m.Run(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := read(t, m); got != step.want || said() != step.say {
			t.Errorf("%s: the data is %q, and its words are %q", step.what, got, said())
		}
	}
	second := offer(t, "two", snapshotOf(t, "second"), nil)
	m.SecretDir, m.From = second.secret, second.from
	if err := m.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, m); got != "second" || said() != "two" {
		t.Errorf("a second restore: the data is %q, and its words are %q", got, said())
	}
}

// TestMemberKeepsItsData: what is not what the Secret speaks of replaces nothing, and the
// member does not start.
func TestMemberKeepsItsData(t *testing.T) {
	snapshot := snapshotOf(t, "new")
	other := offer(t, "other", snapshot, nil)
	for name, change := range map[string]func(secret map[string]string){
		"another checksum": func(s map[string]string) { s[keySHA256] = strings.Repeat("0", 64) },
		"another token":    func(s map[string]string) { s[keyToken] = "guessed" },
		"no token":         func(s map[string]string) { delete(s, keyToken) },
		"another server": func(s map[string]string) {
			ca, err := os.ReadFile(filepath.Join(other.secret, keyCA))
			if err != nil {
				t.Fatal(err)
			}
			s[keyCA] = string(ca)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := embedded(t, offer(t, "old", snapshotOf(t, "old"), nil))
			if err := m.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			bad := offer(t, "new", snapshot, change)
			m.SecretDir, m.From = bad.secret, bad.from
			if err := m.restore(t.Context(), "new"); err == nil {
				t.Error("it was restored")
			}
			if got := read(t, m); got != "old" {
				t.Errorf("the data is %q", got)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := m.Run(ctx); err == nil {
				t.Error("the member would start")
			}
		})
	}
}

// TestMemberOfTwoAttempts: while a second attempt has nothing to offer yet, a member that the
// first one has not reached does not start, and one that has its data does.
func TestMemberOfTwoAttempts(t *testing.T) {
	first := offer(t, "one", snapshotOf(t, "first"), nil)
	done, fresh := embedded(t, first), embedded(t, first)
	if err := done.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	secret := map[string][]byte{}
	for _, key := range []string{keyID, keyToken, keyCA, keySHA256} {
		text, err := done.read(key)
		if err != nil {
			t.Fatal(err)
		}
		secret[key] = []byte(text)
	}
	dir := t.TempDir()
	if err := remembering(secret, nil, "job"); err != nil {
		t.Fatal(err)
	}
	for name, text := range secret {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done.SecretDir, done.From = dir, "https://127.0.0.1:1"
	fresh.SecretDir, fresh.From = done.SecretDir, done.From
	if err := done.Run(t.Context()); err != nil {
		t.Errorf("a member that has the data: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fresh.Run(ctx); err == nil {
		t.Error("a member without data would start")
	}
}

// TestRemembering: what has been stopped already is started as it was, and what another Job has
// restored is over.
func TestRemembering(t *testing.T) {
	data := map[string][]byte{keyReplicas: []byte(`{"deployment/a":3,"deployment/b":2}`), keyRestored: []byte("other")}
	if err := remembering(data, map[string]int32{"deployment/a": 0, "deployment/b": 1, "deployment/c": 0}, "job"); err != nil {
		t.Fatal(err)
	}
	if len(data) != 2 || string(data[keyReplicas]) != `{"deployment/a":3,"deployment/b":1}` || string(data[keyActive]) != "job" {
		t.Errorf("the Secret has %q", data)
	}
}

// TestThreeMembers: three members of an etcd become one, and have nothing to do with one that
// has the data of before.
func TestThreeMembers(t *testing.T) {
	o := offer(t, "id", snapshotOf(t, "restored"), nil)
	var members []Member
	var cluster []string
	for i := range 3 {
		name := fmt.Sprintf("sandlot-etcd-%d", i)
		peer := fmt.Sprintf("http://127.13.0.%d:2380", i+1) // where no other test listens
		cluster = append(cluster, name+"="+peer)
		members = append(members, Member{SecretDir: o.secret, From: o.from, TerminationLog: filepath.Join(t.TempDir(), "log"),
			Name: name, DataDir: filepath.Join(t.TempDir(), "data"), InitialAdvertisePeerURLs: peer})
	}
	var started []*embed.Etcd
	for _, m := range members {
		m.InitialCluster = strings.Join(cluster, ",")
		// What it had before.
		if err := os.MkdirAll(filepath.Join(m.DataDir, "member"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := m.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		etcd, err := embed.StartEtcd(m.config(t))
		if err != nil {
			t.Fatal(err)
		}
		defer etcd.Close()
		started = append(started, etcd)
	}
	for _, etcd := range started {
		<-etcd.Server.ReadyNotify()
		client := connect(t, etcd.Config().AdvertiseClientUrls[0].String())
		defer client.Close()
		answer, err := client.Get(t.Context(), "key")
		if err != nil || len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != "restored" {
			t.Errorf("%s: %v, %v", etcd.Config().Name, answer, err)
		}
		if len(etcd.Server.Cluster().Members()) != 3 {
			t.Errorf("%s knows %d members", etcd.Config().Name, len(etcd.Server.Cluster().Members()))
		}
	}
}

// config is what the flags of etcd would say.
func (m Member) config(t *testing.T) *embed.Config {
	t.Helper()
	parse := func(text string) []url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return []url.URL{*u}
	}
	cfg := embed.NewConfig()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.Name, cfg.Dir, cfg.InitialCluster, cfg.InitialClusterToken = m.Name, m.DataDir, m.InitialCluster, "sandlot"
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = parse(m.InitialAdvertisePeerURLs), parse(m.InitialAdvertisePeerURLs)
	client := strings.Replace(m.InitialAdvertisePeerURLs, "2380", "2379", 1)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = parse(client), parse(client)
	return cfg
}
