// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storecheck_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/findings"
	"github.com/sandlot-io/sandlot/pkg/storecheck"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

const (
	namespace = "team"
	stock     = 120 // more than a page
	served    = 20
	objects   = options.EtcdPrefix + "/agents.kruise.io/"
)

// stored leaves a store with a pool of which claims have taken some, and no server that
// runs on it.
func stored(t *testing.T, opts ...testutil.Option) *clientv3.Client {
	t.Helper()
	s := testutil.Start(t, opts...)
	set := s.Set(t, namespace, "pool", stock)
	s.Stock(t, set, 0, stock)
	storm := &load.Storm{Namespace: namespace, Clients: 4, Total: served, Claim: func(_, n int) *v1alpha1.SandboxClaim {
		return testutil.Claim(set, fmt.Sprintf("claim-%02d", n), 1, nil)
	}}
	storm.Start(t, s.Client.AgentsV1alpha1).Finish()
	if len(storm.Answers()) != served {
		t.Fatalf("%d of %d claims were answered: %v, %v", len(storm.Answers()), served, storm.Refusals(), storm.Failures())
	}
	s.Stop()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.EtcdServers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func run(t *testing.T, kv clientv3.KV, o storecheck.Options) *storecheck.Report {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = options.EtcdPrefix
	}
	o.Now = time.Now()
	report, err := storecheck.Run(t.Context(), kv, o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// told is what a report found, as "level check: objects".
func told(report *storecheck.Report) []string {
	all := []string{}
	for _, f := range report.Findings {
		all = append(all, fmt.Sprintf("%s %s: %s", f.Level, f.Check, strings.Join(f.Objects, ", ")))
	}
	return all
}

// allIsWell: all of a store was read, and nothing was found.
func allIsWell(t *testing.T, etcd *clientv3.Client) {
	t.Helper()
	report := run(t, etcd, storecheck.Options{})
	want := map[string]int{"sandboxclaims": served, "sandboxes": stock, "sandboxsets": 1}
	if diff := cmp.Diff(want, report.Objects); diff != "" || len(report.Findings) > 0 || report.Keys < stock+served+2 || report.Revision == 0 {
		t.Fatalf("%d keys at revision %d, findings %v, objects (-want +got):\n%s", report.Keys, report.Revision, told(report), diff)
	}
}

// TestStoreInProtobuf: the same holds for objects in protobuf.
func TestStoreInProtobuf(t *testing.T) {
	t.Parallel()
	etcd := stored(t)
	allIsWell(t, etcd)
	const claim = objects + "sandboxclaims/team/claim-00"
	answer, err := etcd.Get(t.Context(), claim)
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("%v, %v", answer, err)
	}
	if _, err := etcd.Put(t.Context(), claim, string(answer.Kvs[0].Value[:100])); err != nil {
		t.Fatal(err)
	}
	if got := told(run(t, etcd, storecheck.Options{})); !slices.Contains(got, "Error Undecodable: "+claim) {
		t.Errorf("half an object: %v", got)
	}
}

// TestStoreOfAServer: what a server leaves after a storm is well, all of it was read, and
// what is done to its keys by hand is found.
func TestStoreOfAServer(t *testing.T) {
	t.Parallel()
	etcd := stored(t, testutil.WithOptions(func(o *options.Options) { o.Etcd.DefaultStorageMediaType = runtime.ContentTypeJSON }))
	allIsWell(t, etcd)

	get := func(key string) string {
		t.Helper()
		answer, err := etcd.Get(t.Context(), key)
		if err != nil || len(answer.Kvs) != 1 {
			t.Fatalf("%s: %v, %v", key, answer, err)
		}
		return string(answer.Kvs[0].Value)
	}
	claim := objects + "sandboxclaims/team/claim-00"
	taken := takenBy(t, get(claim))
	sandbox := objects + "sandboxes/team/" + taken
	free := freeSandbox(t, etcd)
	replaced := func(old, with string) func(string) string {
		return func(stored string) string {
			if !strings.Contains(stored, old) {
				t.Fatalf("there is no %q in %s", old, stored)
			}
			return strings.ReplaceAll(stored, old, with)
		}
	}
	constant := func(value string) func(string) string { return func(string) string { return value } }
	for name, damage := range map[string]struct {
		key  string
		to   func(stored string) string
		want []string
	}{
		"a sandbox that is bound to another claim": {
			sandbox, replaced(`"claim-00"`, `"claim-01"`),
			[]string{"Error BoundToOther: Sandbox team/" + taken + ", SandboxClaim team/claim-00"},
		},
		"a sandbox that went back to its pool without being recycled": {
			sandbox, constant(strings.ReplaceAll(get(objects+"sandboxes/team/"+free), free, taken)),
			[]string{"Error ListedNotBound: SandboxClaim team/claim-00, Sandbox team/" + taken},
		},
		"a claim that lost its list": {
			claim, func(stored string) string {
				return replaced(`"claimedReplicas":1`, `"claimedReplicas":0`)(replaced(`"sandboxes":`, `"lost":`)(stored))
			},
			[]string{"Error BoundNotListed: SandboxClaim team/claim-00, Sandbox team/" + taken},
		},
		"half an object": {
			sandbox, func(stored string) string { return stored[:len(stored)/2] },
			[]string{"Error Undecodable: " + sandbox},
		},
		"an object of another kind": {
			sandbox, constant(get(claim)),
			[]string{"Error WrongKind: " + sandbox},
		},
		"an object of another name": {
			objects + "sandboxes/team/copy", constant(get(sandbox)),
			[]string{"Error WrongName: " + objects + "sandboxes/team/copy"},
		},
		"a copy of an object": {
			objects + "sandboxsets/other/pool", constant(strings.ReplaceAll(get(objects+"sandboxsets/team/pool"), `"team"`, `"other"`)),
			[]string{"Error UniqueUID: SandboxSet other/pool, SandboxSet team/pool"},
		},
		"an object without a UID": {
			objects + "sandboxes/team/" + free, replaced(`"uid":"uid-`+free+`",`, ""),
			[]string{"Error UniqueUID: " + objects + "sandboxes/team/" + free},
		},
		"an object in the words of another API": {
			objects + "sandboxes/team/cold", constant(`{"kind":"Sandbox","apiVersion":"agents.x-k8s.io/v1beta1","metadata":{"name":"cold","namespace":"team","uid":"cold"}}`),
			[]string{"Error StoredVersion: " + objects + "sandboxes/team/cold"},
		},
		"a key of agent-runtimes that is none": {
			options.EtcdPrefix + "/sandlot-runtime-key", constant("short"),
			[]string{"Error RuntimeKey: " + options.EtcdPrefix + "/sandlot-runtime-key"},
		},
		"a server without a lease": {
			options.EtcdPrefix + "/sandlot-servers/a", constant(""),
			[]string{"Warning KeyWithoutLease: " + options.EtcdPrefix + "/sandlot-servers/a"},
		},
		"a resource of a later version": {
			objects + "sandboxsnapshots/team/a", constant("{}"),
			[]string{"Warning UnknownKey: " + objects + "sandboxsnapshots/team/a"},
		},
	} {
		answer, err := etcd.Get(t.Context(), damage.key)
		if err != nil {
			t.Fatal(err)
		}
		was := ""
		if len(answer.Kvs) > 0 {
			was = string(answer.Kvs[0].Value)
		}
		if _, err := etcd.Put(t.Context(), damage.key, damage.to(was)); err != nil {
			t.Fatal(err)
		}
		report := run(t, etcd, storecheck.Options{})
		if diff := cmp.Diff(damage.want, told(report)); diff != "" {
			t.Errorf("%s: findings (-want +got):\n%s", name, diff)
		}
		for _, f := range report.Findings {
			if f.Message == "" || f.Action == "" {
				t.Errorf("%s: %+v does not say what was found, or what to do", name, f)
			}
		}
		if was == "" {
			_, err = etcd.Delete(t.Context(), damage.key)
		} else {
			_, err = etcd.Put(t.Context(), damage.key, was)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	if got := told(run(t, etcd, storecheck.Options{Prefix: "/elsewhere"})); !cmp.Equal(got, []string{"NotLookedAt Empty: "}) {
		t.Errorf("where nothing is stored: %v", got)
	}
	if got := told(run(t, etcd, storecheck.Options{})); len(got) > 0 {
		t.Errorf("after all was put back: %v", got)
	}
}

// takenBy is the sandbox that a stored claim lists.
func takenBy(t *testing.T, claim string) string {
	t.Helper()
	_, list, ok := strings.Cut(claim, `"sandboxes":[{"name":"`)
	name, _, closed := strings.Cut(list, `"`)
	if !ok || !closed {
		t.Fatalf("no sandbox is listed in %s", claim)
	}
	return name
}

// freeSandbox is a sandbox that no claim has taken.
func freeSandbox(t *testing.T, etcd *clientv3.Client) string {
	t.Helper()
	all, err := etcd.Get(t.Context(), objects+"sandboxes/team/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range all.Kvs {
		if !bytes.Contains(pair.Value, []byte(v1alpha1.AnnotationOwner)) {
			return strings.TrimPrefix(string(pair.Key), objects+"sandboxes/team/")
		}
	}
	t.Fatal("no sandbox is free")
	return ""
}

// TestEncryptedStore: what is encrypted at rest is read with the file of the API server, and
// without it is not taken for well.
func TestEncryptedStore(t *testing.T) {
	t.Parallel()
	configured := func(secret byte) string {
		file := filepath.Join(t.TempDir(), "encryption.yaml")
		config := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"+
			"- resources: ['*.agents.kruise.io']\n  providers:\n  - secretbox: {keys: [{name: a, secret: %s}]}\n  - identity: {}\n",
			base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{secret}, 32)))
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	file := configured(1)
	etcd := stored(t, testutil.WithOptions(func(o *options.Options) { o.Etcd.EncryptionProviderConfigFilepath = file }))

	transformersOf := func(file string) storecheck.Options {
		transformers, err := storecheck.LoadTransformers(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		return storecheck.Options{Transformers: transformers}
	}
	if report := run(t, etcd, transformersOf(file)); report.Objects["sandboxclaims"] != served || len(report.Findings) > 0 {
		t.Errorf("with the key: %d claims, %v", report.Objects["sandboxclaims"], told(report))
	}
	for name, o := range map[string]storecheck.Options{"without a key": {}, "with another key": transformersOf(configured(2))} {
		report := run(t, etcd, o)
		if report.Unread() == 0 || report.Errors() > 0 || report.Objects["sandboxclaims"] > 0 {
			t.Errorf("%s: %+v", name, report)
		}
		for _, f := range report.Findings {
			if f.Level != findings.NotLookedAt || !strings.Contains(f.Action, "--encryption-provider-config") {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}
