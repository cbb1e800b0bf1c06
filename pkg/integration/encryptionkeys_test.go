// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	encryptionconfigcontroller "k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

// Servers of these tests look for new keys more often than once a minute.
func init() {
	encryptionconfigcontroller.EncryptionConfigFileChangePollDuration = 100 * time.Millisecond
}

// keysFile is an EncryptionConfiguration that servers follow.
type keysFile string

// write lets servers write with the first of the providers and read with all: names of keys
// of one letter, or "identity".
func (f keysFile) write(t *testing.T, providers ...string) {
	t.Helper()
	config := &strings.Builder{}
	config.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n" +
		"resources:\n- resources: ['*.agents.kruise.io']\n  providers:\n")
	for _, name := range providers {
		if name == "identity" {
			config.WriteString("  - identity: {}\n")
			continue
		}
		fmt.Fprintf(config, "  - secretbox: {keys: [{name: %s, secret: %s}]}\n", name,
			base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name), 32)))
	}
	if err := os.WriteFile(string(f)+".new", []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(string(f)+".new", string(f)); err != nil {
		t.Fatal(err)
	}
}

// rewriting is held by rewrite, which counts the servers of all tests.
var rewriting sync.Mutex

// rewrite is write, and waits until so many servers have read it, which are all that follow the file.
func (f keysFile) rewrite(t *testing.T, servers int, providers ...string) {
	t.Helper()
	rewriting.Lock()
	defer rewriting.Unlock()
	want := reloads(t) + float64(servers)
	f.write(t, providers...)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := reloads(t); got < want {
			return fmt.Errorf("%v reloads of the keys, want %v", got, want)
		}
		return nil
	})
}

// reloads is how often servers of this process have taken up other keys.
func reloads(t *testing.T) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	count := 0.0
	for _, family := range families {
		if family.GetName() != "apiserver_encryption_config_controller_automatic_reloads_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "status" && label.GetValue() == "success" {
					count += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return count
}

func following(f keysFile) testutil.Option {
	return testutil.WithOptions(func(o *options.Options) {
		o.Etcd.EncryptionProviderConfigFilepath = string(f)
		o.Etcd.EncryptionProviderConfigAutomaticReload = true
	})
}

// awaitRewritten waits until it is written down that everything is encrypted with a key.
func (e atRest) awaitRewritten(t *testing.T, key string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		resp, err := e.Get(ctx, path.Join(options.EtcdPrefix, "sandlot-encryption"))
		if err != nil {
			return err
		}
		if len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != key {
			return fmt.Errorf("written down is %v, want %s", resp.Kvs, key)
		}
		return nil
	})
}

// mustAllBegin fails unless all objects and the key for agent-runtimes are at rest with a
// prefix, or in plain text where that is empty.
func (e atRest) mustAllBegin(t *testing.T, prefix string) {
	t.Helper()
	values := 0
	for _, keys := range []string{path.Join(options.EtcdPrefix, v1alpha1.GroupName) + "/", path.Join(options.EtcdPrefix, "sandlot-runtime-key")} {
		resp, err := e.Get(t.Context(), keys, clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range resp.Kvs {
			values++
			if !begins(string(kv.Value), prefix) {
				t.Errorf("%s is at rest as %.40q", kv.Key, kv.Value)
			}
		}
	}
	if values < 3 {
		t.Errorf("there are %d values", values)
	}
}

// begins reports whether a value at rest has the prefix of a key, or none of any key where
// that is empty.
func begins(value, prefix string) bool {
	if prefix == "" {
		return !strings.HasPrefix(value, "k8s:enc:")
	}
	return strings.HasPrefix(value, prefix)
}

// contents are claims and sandboxes without what a write changes that changes nothing.
func contents(t *testing.T, s *testutil.Server) everything {
	t.Helper()
	all := readAll(t, s)
	for i := range all.Claims {
		all.Claims[i].ResourceVersion = ""
	}
	for i := range all.Sandboxes {
		all.Sandboxes[i].ResourceVersion = ""
	}
	return all
}

// A store in plain text becomes encrypted, gets the next key, and becomes plain again, with
// two servers that are not restarted and claims that continue. No claim fails for it, the
// transactions that bind take up each key, and in the end no content has changed.
func TestKeysChangeUnderClaims(t *testing.T) {
	stock := expect.Many(240, 1200)
	s, set := stocked(t, stock)
	s.Stop()
	keys := keysFile(filepath.Join(t.TempDir(), "encryption.yaml"))
	keys.write(t, "identity", "a")
	servers := []*testutil.Server{
		testutil.Start(t, testutil.WithEtcd(s.EtcdServers), following(keys)),
		testutil.Start(t, testutil.WithEtcd(s.EtcdServers), following(keys)),
	}
	etcd := lookAt(t, servers[0])

	made := 0
	storm := func(t *testing.T) []*load.Storm {
		var storms []*load.Storm
		for i, server := range servers {
			all := &load.Storm{
				Namespace: namespace, Clients: 4, Total: stock / 8,
				Claim: func(_, n int) *v1alpha1.SandboxClaim {
					return testutil.Claim(set, fmt.Sprintf("c-%d-%d-%d", made, i, n), 1, both(waits, timeout(expect.Patience)))
				},
			}
			storms = append(storms, all.Start(t, server.Client.AgentsV1alpha1))
		}
		return storms
	}
	for _, stage := range []struct {
		readable, providers []string
		recorded, prefix    string
	}{
		{nil, []string{"a", "identity"}, "secretbox:v1:a", "k8s:enc:secretbox:v1:a:"},
		{[]string{"a", "b", "identity"}, []string{"b", "a", "identity"}, "secretbox:v1:b", "k8s:enc:secretbox:v1:b:"},
		{nil, []string{"identity", "b", "a"}, "plain", ""},
	} {
		storms := storm(t)
		if stage.readable != nil {
			keys.rewrite(t, len(servers), stage.readable...)
		}
		keys.rewrite(t, len(servers), stage.providers...)
		// The transaction writes with the key, not only the generic store.
		name := fmt.Sprintf("after-%d", made)
		claim := create(t, servers[made%2], testutil.Claim(set, name, 2, both(waits, timeout(expect.Patience))))
		for resource, object := range map[string]string{"sandboxclaims": name, "sandboxes": claim.Status.Sandboxes[0].Name} {
			if data, _ := etcd.get(t, resource, object); !begins(data, stage.prefix) {
				t.Errorf("%s %s is at rest as %.40q", resource, object, data)
			}
		}
		for _, all := range storms {
			all.Finish()
			for _, failure := range append(all.Refusals(), all.Failures()...) {
				t.Errorf("%s: %v", stage.recorded, failure.Err)
			}
			for _, err := range all.Complaints() {
				t.Error(err)
			}
		}
		before := contents(t, servers[0])
		etcd.awaitRewritten(t, stage.recorded)
		etcd.mustAllBegin(t, stage.prefix)
		for _, server := range servers {
			if diff := cmp.Diff(before, contents(t, server)); diff != "" {
				t.Errorf("%s: what clients read has changed: -before +after\n%s", stage.recorded, diff)
			}
		}
		made++
	}
	checkInvariants(t, servers[0])

	list, err := claims(servers[1]).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := 3 * (2*(stock/8) + 1); len(list.Items) != want {
		t.Errorf("%d claims, want %d", len(list.Items), want)
	}
}

// A server that ends while the store is encrypted anew leaves the rest to the next one.
func TestServerEndsWhileKeysChange(t *testing.T) {
	s, _ := stocked(t, 500)
	s.Stop()
	keys := keysFile(filepath.Join(t.TempDir(), "encryption.yaml"))
	keys.write(t, "a", "identity")
	etcd := lookAt(t, s)
	first := testutil.Start(t, testutil.WithEtcd(s.EtcdServers), following(keys))
	before := contents(t, first)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // it has begun
		all, err := etcd.Get(ctx, path.Join(options.EtcdPrefix, v1alpha1.GroupName)+"/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range all.Kvs {
			if bytes.HasPrefix(kv.Value, []byte("k8s:enc:secretbox:v1:a:")) {
				return nil
			}
		}
		return fmt.Errorf("none of %d values is encrypted", len(all.Kvs))
	})
	first.Stop()
	second := testutil.Start(t, testutil.WithEtcd(s.EtcdServers), following(keys))
	etcd.awaitRewritten(t, "secretbox:v1:a")
	etcd.mustAllBegin(t, "k8s:enc:secretbox:v1:a:")
	if diff := cmp.Diff(before, contents(t, second)); diff != "" {
		t.Errorf("what clients read has changed: -before +after\n%s", diff)
	}
}
