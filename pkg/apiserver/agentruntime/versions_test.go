// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
)

// anHour is a time at which versions are made.
var anHour = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// withVersions is what is stored, in plain text, of a key that was rotated at each of the times.
func withVersions(t *testing.T, first byte, rotated ...time.Time) []byte {
	t.Helper()
	plain := bytes.Repeat([]byte{first}, 32)
	for _, at := range rotated {
		var err error
		if plain, err = agentruntime.AddVersion(plain, at); err != nil {
			t.Fatal(err)
		}
	}
	return plain
}

func put(t *testing.T, kv clientv3.KV, prefix string, data []byte) {
	t.Helper()
	if _, err := kv.Put(t.Context(), "/"+prefix+"/sandlot-runtime-key", string(data)); err != nil {
		t.Fatal(err)
	}
}

func TestStoredVersions(t *testing.T) {
	version := func(number int) string {
		return fmt.Sprintf(`{"version":%d,"secret":"%s="}`, number, strings.Repeat("A", 43)) // 32 bytes
	}
	good := version(1)
	for stored, want := range map[string]string{
		strings.Repeat("x", 32):                          "",
		`{"versions":[` + good + `]}`:                    "",
		`{"versions":[` + good + `,` + version(7) + `]}`: "",
		`{"versions":[` + version(7) + `]}`:              "",
		"":                                               "nor is it JSON",
		strings.Repeat("x", 33):                          "nor is it JSON",
		"{}":                                             "has no version",
		`{"versions":[` + good + `,` + good + `]}`:       "comes after version 1",
		`{"versions":[` + version(2) + `,` + good + `]}`: "comes after version 2",
		`{"versions":[` + version(0) + `]}`:              "comes after version 0",
		`{"versions":[{"version":1,"secret":"AAAA"}]}`:   "has 3 bytes",
	} {
		_, err := agentruntime.NewKeyring([]byte(stored))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", stored, err, want)
		}
	}
}

// TestNewVersion: what is new has the newest version, and what was bound with one keeps it. A
// server that does not know a version yet reads it.
func TestNewVersion(t *testing.T) {
	client := etcd(t)
	put(t, client, "registry", bytes.Repeat([]byte{1}, 32))
	load := func() *agentruntime.Keyring {
		keyring, err := agentruntime.Load(t.Context(), client, "registry", nil)
		if err != nil {
			t.Fatal(err)
		}
		return keyring
	}
	token := func(keyring *agentruntime.Keyring, version string) string {
		sb := boundWith("sandbox", version)
		if version == "" {
			sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest] = "v1:"
		}
		token, err := keyring.Token(t.Context(), "claim", sb)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	refreshed, behind := load(), load()
	first := token(refreshed, "1")
	if token(refreshed, "") != first || tokenOf(t, newKeyring(t, 1), "claim", "sandbox") != first {
		t.Error("a key of before there were versions is not version 1")
	}
	put(t, client, "registry", withVersions(t, 1, anHour))
	if err := refreshed.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim := sealedClaim()
	sealed, version, err := refreshed.Seal(claim)
	if err != nil || version != "2" {
		t.Fatalf("sealed with version %s, %v", version, err)
	}
	if _, version, err := behind.Seal(claim); err != nil || version != "1" {
		t.Errorf("a server that does not know the version has sealed with %s, %v", version, err)
	}
	sb := boundWith("sandbox", "2")
	sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest] = sealed
	got, err := behind.Open(t.Context(), claim.UID, sb)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(agentruntime.RequestOf(claim), got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	for _, server := range []*agentruntime.Keyring{refreshed, behind, load()} {
		if token(server, "1") != first || token(server, "") != first {
			t.Error("a sandbox of before has another token")
		}
		if second := token(server, "2"); second == first || second != token(refreshed, "2") {
			t.Errorf("a sandbox of after has the token %s", second)
		}
		for _, unknown := range []string{"3", "0", "-1", "two"} {
			if _, err := server.Token(t.Context(), "claim", boundWith("sandbox", unknown)); !errors.Is(err, agentruntime.ErrVersion) {
				t.Errorf("version %q: %v", unknown, err)
			}
		}
	}
	sb.Annotations[v1alpha1.AnnotationRuntimeKeyVersion] = "1"
	if request, err := refreshed.Open(t.Context(), claim.UID, sb); err == nil {
		t.Errorf("another version opens %v", request)
	}
}

// TestRefreshKeepsWhatItHas: an error of the store is returned, and changes nothing.
func TestRefreshKeepsWhatItHas(t *testing.T) {
	client := etcd(t)
	keyring, err := agentruntime.Load(t.Context(), client, "registry", nil)
	if err != nil {
		t.Fatal(err)
	}
	before := tokenOf(t, keyring, "claim", "sandbox")
	put(t, client, "registry", []byte("{}"))
	if err := keyring.Refresh(t.Context()); err == nil {
		t.Error("nonsense was read")
	}
	if _, err := client.Delete(t.Context(), "/registry/sandlot-runtime-key"); err != nil {
		t.Fatal(err)
	}
	if err := keyring.Refresh(t.Context()); err == nil {
		t.Error("nothing was read")
	}
	if tokenOf(t, keyring, "claim", "sandbox") != before {
		t.Error("the key changed")
	}
}

// versionsIn are the versions that are stored.
func versionsIn(t *testing.T, plain []byte) []int {
	t.Helper()
	var stored struct{ Versions []struct{ Version int } }
	if err := json.Unmarshal(plain, &stored); err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, v := range stored.Versions {
		all = append(all, v.Version)
	}
	return all
}

// TestUnusedVersionsAreRemoved: of versions 1 to 3, of which 2 was made an hour and 3 half an
// hour before, and later.
func TestUnusedVersionsAreRemoved(t *testing.T) {
	client := etcd(t)
	requested := boundWith("requested", "")
	requested.Annotations[v1alpha1.AnnotationInitRuntimeRequest] = "v1:"
	private := boundWith("private", "")
	private.Annotations[v1alpha1.AnnotationE2BPrivate], private.Annotations[v1alpha1.AnnotationOwner] = "true", "claim"
	unbound := boundWith("unbound", "")
	unbound.Annotations[v1alpha1.AnnotationE2BPrivate] = "true"
	warm := boundWith("warm", "")
	warm.Annotations[v1alpha1.AnnotationRuntimeTokenID] = "1/pod.0"
	taken := boundWith("taken", "3")
	taken.Annotations[v1alpha1.AnnotationRuntimeTokenID] = "2/pod.0"
	rotated := []time.Time{anHour, anHour.Add(agentruntime.KeptFor / 2)}
	over := agentruntime.KeptFor + time.Second
	for i, tc := range []struct {
		after     time.Duration
		sandboxes []*v1alpha1.Sandbox
		want      []int
	}{
		{agentruntime.KeptFor, nil, []int{1, 2, 3}},
		{over, nil, []int{2, 3}},
		{over, []*v1alpha1.Sandbox{boundWith("first", "1")}, []int{1, 2, 3}},
		{over, []*v1alpha1.Sandbox{boundWith("without", "")}, []int{2, 3}},
		{over, []*v1alpha1.Sandbox{requested}, []int{1, 2, 3}},
		{over, []*v1alpha1.Sandbox{private}, []int{1, 2, 3}},
		{over, []*v1alpha1.Sandbox{unbound}, []int{2, 3}},
		{over, []*v1alpha1.Sandbox{boundWith("foreign", "x")}, []int{2, 3}},
		{2 * over, nil, []int{3}},
		{2 * over, []*v1alpha1.Sandbox{boundWith("second", "2")}, []int{2, 3}},
		{2 * over, []*v1alpha1.Sandbox{boundWith("first", "1")}, []int{1, 3}},
		{2 * over, []*v1alpha1.Sandbox{boundWith("third", "3")}, []int{3}},
		{2 * over, []*v1alpha1.Sandbox{warm}, []int{1, 3}},
		{2 * over, []*v1alpha1.Sandbox{taken}, []int{2, 3}},
	} {
		prefix := fmt.Sprintf("registry-%d", i)
		put(t, client, prefix, withVersions(t, 1, rotated...))
		keyring, err := agentruntime.Load(t.Context(), client, prefix, nil)
		if err != nil {
			t.Fatal(err)
		}
		pruner := &agentruntime.Pruner{
			Keyring: keyring, Clock: clocktesting.NewFakeClock(anHour.Add(tc.after)),
			Use: func(context.Context) (use agentruntime.Use, err error) {
				for _, sb := range tc.sandboxes {
					use.Add(sb)
				}
				return use, nil
			},
		}
		if err := pruner.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := versionsIn(t, stored(t, client, prefix)); !slices.Equal(got, tc.want) {
			t.Errorf("%d: after %s there are %v, want %v", i, tc.after, got, tc.want)
		}
		if _, version, err := keyring.Seal(sealedClaim()); err != nil || version != "3" {
			t.Errorf("%d: sealed with version %s, %v", i, version, err)
		}
		_, err = keyring.Token(t.Context(), "claim", boundWith("sandbox", "1"))
		if known := slices.Contains(tc.want, 1); known != (err == nil) {
			t.Errorf("%d: a token of version 1: %v", i, err)
		}
	}
}

// TestVersionsThatChange: a key that is about to be rotated is left alone, or it would not be,
// and so is one that another server wrote.
func TestVersionsThatChange(t *testing.T) {
	client := etcd(t)
	keys := func(names ...string) value.Transformer {
		var all []value.PrefixTransformer
		for _, name := range names {
			all = append(all, value.PrefixTransformer{Prefix: []byte(name), Transformer: secretbox.NewSecretboxTransformer([32]byte{name[0]})})
		}
		return value.NewPrefixTransformers(nil, append(all, value.PrefixTransformer{Transformer: identity.NewEncryptCheckTransformer()})...)
	}
	changing := &changingTransformer{keys("a:")}
	const key = "/registry/sandlot-runtime-key"
	write := func(rotated ...time.Time) []byte {
		data, err := keys("a:").TransformToStorage(t.Context(), withVersions(t, 1, rotated...), value.DefaultContext(key))
		if err != nil {
			t.Fatal(err)
		}
		put(t, client, "registry", data)
		return data
	}
	before := write(anHour)
	keyring, err := agentruntime.Load(t.Context(), client, "registry", changing)
	if err != nil {
		t.Fatal(err)
	}
	meanwhile := func() {}
	pruner := &agentruntime.Pruner{
		Keyring: keyring, Clock: clocktesting.NewFakeClock(anHour.Add(10 * agentruntime.KeptFor)),
		Use: func(context.Context) (agentruntime.Use, error) {
			meanwhile()
			return agentruntime.Use{}, nil
		},
	}
	for name, change := range map[string]func(){
		"before":    func() { changing.Transformer = keys("b:", "a:") },
		"meanwhile": func() { meanwhile = func() { changing.Transformer = keys("b:", "a:") } },
		"rotated":   func() { meanwhile = func() { before = write(anHour, anHour) } },
	} {
		meanwhile, changing.Transformer = func() {}, keys("a:")
		before = write(anHour)
		change()
		if err := pruner.Prune(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(stored(t, client, "registry"), before) {
			t.Errorf("%s: versions were removed", name)
		}
	}
}

// changingTransformer is what encrypts at rest where keys are rotated.
type changingTransformer struct{ value.Transformer }
