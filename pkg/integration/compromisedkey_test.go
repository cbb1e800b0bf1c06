// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/storecheck"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// runtimeKey returns the key for agent-runtimes in plain text, as who has the store and the keys
// of its encryption can.
func (e atRest) runtimeKey(t *testing.T, keys keysFile) []byte {
	t.Helper()
	transformers, err := storecheck.LoadTransformers(t.Context(), string(keys))
	if err != nil {
		t.Fatal(err)
	}
	key := path.Join(options.EtcdPrefix, "sandlot-runtime-key")
	stored, err := e.Get(t.Context(), key)
	if err != nil || len(stored.Kvs) != 1 {
		t.Fatalf("%v, %v", stored, err)
	}
	transformer := transformers.TransformerForResource(v1alpha1.Resource("sandboxclaims"))
	plain, _, err := transformer.TransformFromStorage(t.Context(), stored.Kvs[0].Value, value.DefaultContext(key))
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// versions are those of the key for agent-runtimes; none if it was never rotated.
func (e atRest) versions(t *testing.T, keys keysFile) []int {
	t.Helper()
	var stored struct{ Versions []struct{ Version int } }
	if json.Unmarshal(e.runtimeKey(t, keys), &stored) != nil {
		return nil
	}
	var all []int
	for _, v := range stored.Versions {
		all = append(all, v.Version)
	}
	return all
}

// tokenRig is two servers of a store, and a pool of sandboxes with agent-runtimes.
type tokenRig struct {
	servers []*testutil.Server
	clients []versioned.Interface
	set     *v1alpha1.SandboxSet
	fleet   *runtimetest.Fleet
}

// claimed is a claim of one sandbox, and what its runtime was given.
type claimed struct {
	*v1alpha1.SandboxClaim
	sandbox v1alpha1.ClaimedSandbox
	runtime *runtimetest.Runtime
	version string
}

// claim claims a sandbox from one of the servers, and requires that both of them tell the token
// that its runtime has, and the create too.
func (r *tokenRig) claim(t *testing.T, server int, name string) *claimed {
	t.Helper()
	tokens := map[string]string{}
	claim, err := client.ClaimAndWait(t.Context(), r.clients[server].AgentsV1alpha1(), testutil.Claim(r.set, name, 1, asks), client.Options{AccessTokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	isSetUp(t, r.fleet, claim, 1)
	c := &claimed{SandboxClaim: claim, sandbox: claim.Status.Sandboxes[0], runtime: runtimesOf(t, r.fleet, claim)[0]}
	if tokens[c.sandbox.Name] != c.runtime.Token() {
		t.Errorf("the response to the create of %s has the tokens %v, its runtime has %s", name, tokens, c.runtime.Token())
	}
	r.tellsToken(t, c)
	c.version = owned(t, r.servers[server], claim)[0].Annotations[v1alpha1.AnnotationRuntimeKeyVersion]
	return c
}

// tellsToken requires that all servers tell the token that the runtime of a claim has.
func (r *tokenRig) tellsToken(t *testing.T, c *claimed) {
	t.Helper()
	for i, server := range r.servers {
		told, err := client.RuntimeAccess(t.Context(), server.Client.AgentsV1alpha1(), c.SandboxClaim)
		if err != nil || len(told) != 1 || told[0].AccessToken != c.runtime.Token() {
			t.Errorf("server %d tells %v of claim %s, whose runtime has the token %s: %v", i, told, c.Name, c.runtime.Token(), err)
		}
	}
}

// TestCompromisedKey: who had the store and its keys knows the tokens of the sandboxes that there
// are then, and, after a rotation of the key of the store, none of later ones. What was bound
// before keeps its token, also in a new pod, until it is gone; then nothing is left of the key.
func TestCompromisedKey(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Now())
	clocked := testutil.WithConfig(func(c *apiserver.Config) { c.ExtraConfig.Clock = clk })
	keys := keysFile(filepath.Join(t.TempDir(), "encryption.yaml"))
	keys.write(t, "a", "identity") // the pool is put there in plain text
	first := testutil.Start(t, following(keys), clocked)
	rig := &tokenRig{
		servers: []*testutil.Server{first, testutil.Start(t, testutil.WithEtcd(first.EtcdServers), following(keys), clocked)},
		fleet:   runtimetest.Start(t),
	}
	const stock = 8
	rig.set, _ = poolOf(t, first, rig.fleet, "pool", stock)
	for _, server := range rig.servers {
		knows(t, server, rig.set, stock)
		c, err := client.NewForConfig(rest.CopyConfig(server.Config))
		if err != nil {
			t.Fatal(err)
		}
		rig.clients = append(rig.clients, c)
	}
	etcd := lookAt(t, first)
	etcd.awaitRewritten(t, "secretbox:v1:a")
	leaked, err := agentruntime.NewKeyring(etcd.runtimeKey(t, keys))
	if err != nil {
		t.Fatal(err)
	}
	forged := func(c *claimed) string {
		token, err := leaked.Token(t.Context(), c.UID, &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{UID: c.sandbox.UID}})
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	before := rig.claim(t, 0, "before")
	if before.version != "1" || forged(before) != before.runtime.Token() {
		t.Fatalf("the key that leaked is not that of version %q", before.version)
	}

	keys.rewrite(t, len(rig.servers), "a", "b", "identity")
	keys.rewrite(t, len(rig.servers), "b", "a", "identity")
	etcd.awaitRewritten(t, "secretbox:v1:b")
	if got := etcd.versions(t, keys); !slices.Equal(got, []int{1, 2}) {
		t.Fatalf("after the rotation there are the versions %v", got)
	}
	// The server that has made the version knows it. The other one reads every few seconds, and
	// when it is asked for a token of that version.
	told := 0
	for server := range rig.servers {
		if rig.claim(t, server, fmt.Sprintf("first-of-%d", server)).version == "2" {
			told++
		}
	}
	if told == 0 {
		t.Error("no server binds with the new version")
	}
	for server := range rig.servers {
		after := rig.claim(t, server, fmt.Sprintf("after-%d", server))
		if after.version != "2" || forged(after) == after.runtime.Token() {
			t.Errorf("after the rotation server %d binds with version %s, and the key that leaked tells %s of the token %s",
				server, after.version, forged(after), after.runtime.Token())
		}
	}

	rig.tellsToken(t, before)
	was := before.runtime.Token()
	before.runtime = rig.fleet.Next()
	resumes(t, rig.servers[1], before.sandbox.Name, before.runtime)
	if c := setUpAgain(t, rig.servers[1], before.sandbox.Name); c.Status != metav1.ConditionTrue || before.runtime.Token() != was || before.runtime.Env()["TOKEN"] != secret {
		t.Errorf("in its next pod the sandbox of before has the token %s in place of %s: %+v", before.runtime.Token(), was, c)
	}
	last := rig.claim(t, 1, "last")
	all, err := sandboxes(first).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range all.Items {
		if sb.Annotations[v1alpha1.AnnotationRuntimeKeyVersion] == "1" {
			if err := sandboxes(first).Delete(t.Context(), sb.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		clk.Step(time.Hour)
		if got := etcd.versions(t, keys); !slices.Equal(got, []int{2}) {
			return fmt.Errorf("there are the versions %v", got)
		}
		return nil
	})
	rig.tellsToken(t, last)
}
