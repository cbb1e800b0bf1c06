// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	claimsEncrypted    = "k8s:enc:aesgcm:v1:key-of-claims:"
	sandboxesEncrypted = "k8s:enc:secretbox:v1:key-of-sandboxes:"
)

// encryptedWith runs a server that encrypts claims and sandboxes at rest, each
// kind in its own way. What is in etcd in plain text can still be read.
func encryptedWith(t *testing.T, claimSecret, sandboxSecret byte) testutil.Option {
	t.Helper()
	secret := func(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }
	config := fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [sandboxclaims.agents.kruise.io]
  providers:
  - aesgcm: {keys: [{name: key-of-claims, secret: %s}]}
  - identity: {}
- resources: [sandboxes.agents.kruise.io]
  providers:
  - secretbox: {keys: [{name: key-of-sandboxes, secret: %s}]}
  - identity: {}
`, secret(claimSecret), secret(sandboxSecret))
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return testutil.WithOptions(func(o *options.Options) { o.Etcd.EncryptionProviderConfigFilepath = file })
}

// atRest is what etcd holds.
type atRest struct{ *clientv3.Client }

func lookAt(t *testing.T, s *testutil.Server) atRest {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.EtcdServers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return atRest{client}
}

func (e atRest) get(t *testing.T, resource, name string) (string, int64) {
	t.Helper()
	key := path.Join(options.EtcdPrefix, v1alpha1.GroupName, resource, namespace, name)
	resp, err := e.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) != 1 {
		t.Fatalf("etcd has nothing under %s", key)
	}
	return string(resp.Kvs[0].Value), resp.Kvs[0].ModRevision
}

// mustBeSecret fails unless an object is encrypted as its kind is.
func (e atRest) mustBeSecret(t *testing.T, resource, name string) {
	t.Helper()
	want := map[string]string{"sandboxclaims": claimsEncrypted, "sandboxes": sandboxesEncrypted}[resource]
	data, _ := e.get(t, resource, name)
	if !strings.HasPrefix(data, want) {
		t.Errorf("%s %s is at rest as %.60q, want %s", resource, name, data, want)
	}
	for _, plain := range []string{"busybox", "kruise", "metadata", name} {
		if strings.Contains(data, plain) {
			t.Errorf("%s %s is at rest with %q in it", resource, name, plain)
		}
	}
}

// everything is what a client reads.
type everything struct {
	Claims    []v1alpha1.SandboxClaim
	Sandboxes []v1alpha1.Sandbox
}

func readAll(t *testing.T, s *testutil.Server) everything {
	t.Helper()
	allClaims, err := claims(s).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	allSandboxes, err := sandboxes(s).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return everything{allClaims.Items, allSandboxes.Items}
}

func TestEncryptionAtRest(t *testing.T) {
	s, set := stocked(t, 5) // before there was encryption, so in plain text
	s.Stop()

	encrypted := encryptedWith(t, 1, 2)
	s = testutil.Start(t, testutil.WithEtcd(s.EtcdServers), encrypted, withSyncWindow(time.Millisecond))
	etcd := lookAt(t, s)

	// Two from the pool, then two of which one has to be made, by create and apply.
	create(t, s, testutil.Claim(set, "created", 2, fails))
	if _, err := claims(s).Patch(t.Context(), "applied", types.ApplyPatchType, applyBody(t, "applied", set.Name, 2), metav1.PatchOptions{FieldManager: "test"}); err != nil {
		t.Fatal(err)
	}
	create(t, s, testutil.Claim(set, "cold", 2, timeout(expect.Patience)))
	for i, sb := range freshOf(t, s, 2) {
		if sb.Annotations[v1alpha1.AnnotationSandboxPriority] != "" { // made for it
			setStatus(t, s, &sb, testutil.ReadyStatus(100+i, time.Now()))
		}
	}
	cold := s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	if cold.Status.ClaimedReplicas != 2 {
		t.Errorf("the cold start ends with %q", cold.Status.Message)
	}

	// What is from before is encrypted too, so that nothing moves any more.
	etcd.awaitRewritten(t, "aesgcm:v1:key-of-claims,plain,secretbox:v1:key-of-sandboxes")
	all := readAll(t, s)
	if len(all.Claims) != 3 || len(all.Sandboxes) != 6 {
		t.Fatalf("there are %d claims and %d sandboxes", len(all.Claims), len(all.Sandboxes))
	}
	for _, claim := range all.Claims {
		etcd.mustBeSecret(t, "sandboxclaims", claim.Name)
		etcd.mustNotBeRewritten(t, s, claim.Name)
	}
	for _, sb := range all.Sandboxes {
		etcd.mustBeSecret(t, "sandboxes", sb.Name)
	}
	checkInvariants(t, s)
	all = readAll(t, s)
	s.Stop()

	for name, wrong := range map[string][]testutil.Option{
		"without keys":      nil,
		"with keys swapped": {encryptedWith(t, 2, 1)},
	} {
		err := testutil.Refusal(t, append(wrong, testutil.WithEtcd(s.EtcdServers))...)
		if err == nil || !strings.Contains(err.Error(), "--encryption-provider-config") {
			t.Errorf("%s, a server starts: %v", name, err)
		}
	}

	s = testutil.Start(t, testutil.WithEtcd(s.EtcdServers), encrypted)
	if diff := cmp.Diff(all, readAll(t, s)); diff != "" {
		t.Errorf("after a restart (-before +after):\n%s", diff)
	}
	checkInvariants(t, s)
}

// mustNotBeRewritten updates a claim to what it is.
func (e atRest) mustNotBeRewritten(t *testing.T, s *testutil.Server, name string) {
	t.Helper()
	var before, after int64
	for range 2 { // the first may write it as protobuf, which the server may have begun to store since
		_, before = e.get(t, "sandboxclaims", name)
		claim, err := claims(s).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := claims(s).Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, after = e.get(t, "sandboxclaims", name); after == before {
			return
		}
	}
	t.Errorf("a second update of claim %s that changes nothing wrote it at %d, it was at %d", name, after, before)
}
