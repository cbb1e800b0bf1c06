// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

func newKeyring(t *testing.T, fill byte) *agentruntime.Keyring {
	t.Helper()
	keyring, err := agentruntime.NewKeyring(bytes.Repeat([]byte{fill}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return keyring
}

// boundWith is a sandbox that names a version of the key; none if that is empty.
func boundWith(uid types.UID, version string) *v1alpha1.Sandbox {
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "box", UID: uid, Annotations: map[string]string{}}}
	if version != "" {
		sb.Annotations[v1alpha1.AnnotationRuntimeKeyVersion] = version
	}
	return sb
}

func tokenOf(t *testing.T, keyring *agentruntime.Keyring, claim, sandbox types.UID) string {
	t.Helper()
	token, err := keyring.Token(t.Context(), claim, boundWith(sandbox, "1"))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokens(t *testing.T) {
	keyring := newKeyring(t, 1)
	token := tokenOf(t, keyring, "claim-a", "sandbox-a")
	id, err := uuid.Parse(token)
	if err != nil || id.Version() != 4 || id.Variant() != uuid.RFC4122 || id.String() != token {
		t.Errorf("%s is no UUID of version 4: %v", token, err)
	}
	if again := tokenOf(t, newKeyring(t, 1), "claim-a", "sandbox-a"); again != token {
		t.Errorf("another server has the token %s in place of %s", again, token)
	}
	seen := map[string]bool{token: true}
	for _, other := range []string{
		tokenOf(t, keyring, "claim-b", "sandbox-a"), tokenOf(t, keyring, "claim-a", "sandbox-b"), tokenOf(t, keyring, "claim-as", "andbox-a"),
		tokenOf(t, newKeyring(t, 2), "claim-a", "sandbox-a"),
	} {
		if seen[other] {
			t.Errorf("the token %s is given out twice", other)
		}
		seen[other] = true
	}
}

func TestAKeyIsOf32Bytes(t *testing.T) {
	if _, err := agentruntime.NewKeyring([]byte("short")); err == nil {
		t.Error("a short key was taken")
	}
}

func sealedClaim() *v1alpha1.SandboxClaim {
	return &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "one", UID: "0195-claim"},
		Spec: v1alpha1.SandboxClaimSpec{
			EnvVars:             map[string]string{"PASSWORD": "hunter2"},
			DynamicVolumesMount: []v1alpha1.CSIMountConfig{{PvName: "data", MountPath: "/data", Attributes: map[string]string{"k": "v"}}},
		},
	}
}

func TestSealedRequestsAreOpened(t *testing.T) {
	claim, keyring := sealedClaim(), newKeyring(t, 1)
	sealed, version, err := keyring.Seal(claim)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(sealed, "v1:") || strings.Contains(sealed, "hunter2") || strings.Contains(sealed, "PASSWORD") {
		t.Errorf("sealed as %s", sealed)
	}
	if version != "1" {
		t.Errorf("sealed with version %s", version)
	}
	got, err := open(t, newKeyring(t, 1), "team-a", claim.UID, sealed) // another server
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(agentruntime.RequestOf(claim), got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func open(t *testing.T, keyring *agentruntime.Keyring, namespace string, claim types.UID, sealed string) (agentruntime.Request, error) {
	t.Helper()
	sb := boundWith("sandbox", "1")
	sb.Namespace, sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest] = namespace, sealed
	return keyring.Open(t.Context(), claim, sb)
}

func TestSealedRequestsAreOpenedForTheirClaimOnly(t *testing.T) {
	claim, keyring := sealedClaim(), newKeyring(t, 1)
	sealed, _, err := keyring.Seal(claim)
	if err != nil {
		t.Fatal(err)
	}
	changed := []byte(sealed)
	changed[len(changed)-6] ^= 1
	for name, opened := range map[string]func() (agentruntime.Request, error){
		"another claim":     func() (agentruntime.Request, error) { return open(t, keyring, "team-a", "0195-other", sealed) },
		"another namespace": func() (agentruntime.Request, error) { return open(t, keyring, "team-b", claim.UID, sealed) },
		"another store":     func() (agentruntime.Request, error) { return open(t, newKeyring(t, 2), "team-a", claim.UID, sealed) },
		"changed":           func() (agentruntime.Request, error) { return open(t, keyring, "team-a", claim.UID, string(changed)) },
		"clear text": func() (agentruntime.Request, error) {
			return open(t, keyring, "team-a", claim.UID, `{"envVars":{"A":"B"}}`)
		},
		"empty": func() (agentruntime.Request, error) { return open(t, keyring, "team-a", claim.UID, "v1:") },
	} {
		if request, err := opened(); err == nil {
			t.Errorf("%s: opened as %v", name, request)
		}
	}
}

func TestAllServersOfAStoreHaveTheSameKey(t *testing.T) {
	client := etcd(t)
	const servers = 8
	tokens := make([]string, servers)
	var starting sync.WaitGroup
	for i := range servers {
		starting.Go(func() {
			keyring, err := agentruntime.Load(t.Context(), client, "registry", nil)
			if err != nil {
				t.Errorf("loading: %v", err)
				return
			}
			tokens[i] = tokenOf(t, keyring, "claim", "sandbox")
		})
	}
	starting.Wait()
	for _, token := range tokens {
		if token != tokens[0] {
			t.Fatalf("servers that start at the same time have the tokens %v", tokens)
		}
	}
	other, err := agentruntime.Load(t.Context(), client, "elsewhere", nil)
	if err != nil {
		t.Fatal(err)
	}
	if tokenOf(t, other, "claim", "sandbox") == tokens[0] {
		t.Error("another store has the same key")
	}
}

func TestTheKeyIsEncryptedAsResourcesAre(t *testing.T) {
	client := etcd(t)
	before, err := agentruntime.Load(t.Context(), client, "registry", nil)
	if err != nil {
		t.Fatal(err)
	}
	encrypted := value.NewPrefixTransformers(nil,
		value.PrefixTransformer{Prefix: []byte("enc:"), Transformer: secretbox.NewSecretboxTransformer([32]byte{7})},
		value.PrefixTransformer{Prefix: nil, Transformer: identity.NewEncryptCheckTransformer()})
	// Encryption at rest is turned on: what is there is read. To encrypt it anew is not the
	// work of a start, for there may be servers that cannot read it then.
	after, err := agentruntime.Load(t.Context(), client, "registry", encrypted)
	if err != nil {
		t.Fatal(err)
	}
	if tokenOf(t, after, "claim", "sandbox") != tokenOf(t, before, "claim", "sandbox") {
		t.Error("the key changed")
	}
	if got := stored(t, client, "registry"); bytes.HasPrefix(got, []byte("enc:")) {
		t.Error("a start has encrypted the key anew")
	}
	// One that is made now is encrypted, and read again.
	made, err := agentruntime.Load(t.Context(), client, "encrypted", encrypted)
	if err != nil {
		t.Fatal(err)
	}
	if got := stored(t, client, "encrypted"); !bytes.HasPrefix(got, []byte("enc:")) {
		t.Error("the key is in clear text")
	}
	again, err := agentruntime.Load(t.Context(), client, "encrypted", encrypted)
	if err != nil {
		t.Fatal(err)
	}
	if tokenOf(t, again, "claim", "sandbox") != tokenOf(t, made, "claim", "sandbox") {
		t.Error("the encrypted key changed")
	}
}

func stored(t *testing.T, client *clientv3.Client, prefix string) []byte {
	t.Helper()
	answer, err := client.Get(t.Context(), "/"+prefix+"/sandlot-runtime-key")
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("%v, %v", answer, err)
	}
	return answer.Kvs[0].Value
}

func etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: testutil.StartEtcd(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
