// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package encryptionkeys

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
)

// transformer is what an API server makes of a configuration.
func transformer(t *testing.T, c config) value.Transformer {
	t.Helper()
	data, err := c.encode()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), KeyConfig)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := encryptionconfig.LoadEncryptionConfig(t.Context(), file, true, "test")
	if err != nil {
		t.Fatal(err)
	}
	return encryptionconfig.StaticTransformers(loaded.Transformers).TransformerForResource(schema.GroupResource{Group: "agents.kruise.io", Resource: "sandboxes"})
}

// API servers read and write as the configuration means, from plain text to the second
// key and back.
func TestServersUnderstandIt(t *testing.T) {
	t.Parallel()
	first, second := keyOf(0), keyOf(1)
	stages := []struct {
		config config
		prefix string
	}{
		{config{plain: true}, "content"},
		{config{keys: []key{first}, plain: true}, "content"},
		{config{keys: []key{first}}, "k8s:enc:secretbox:v1:" + first.Name + ":"},
		{config{keys: []key{first, second}}, "k8s:enc:secretbox:v1:" + first.Name + ":"},
		{config{keys: []key{second, first}}, "k8s:enc:secretbox:v1:" + second.Name + ":"},
		{config{keys: []key{second, first}, plain: true}, "content"},
	}
	ctx, at := t.Context(), value.DefaultContext("/sandlot/x")
	for i, stage := range stages {
		data, err := transformer(t, stage.config).TransformToStorage(ctx, []byte("content"), at)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(data), stage.prefix) {
			t.Errorf("stage %d writes %.60q", i, data)
		}
		// A server that is a stage behind reads it, and one that is any number ahead.
		for j := max(0, i-1); j < len(stages); j++ {
			plain, stale, err := transformer(t, stages[j].config).TransformFromStorage(ctx, data, at)
			if err != nil || !bytes.Equal(plain, []byte("content")) {
				t.Errorf("a server at stage %d cannot read what one at stage %d writes: %v", j, i, err)
			}
			if want := stages[j].prefix != stage.prefix; stale != want {
				t.Errorf("at stage %d what was written at stage %d is stale: %t", j, i, stale)
			}
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, c := range []config{{plain: true}, {keys: []key{keyOf(0)}}, {keys: []key{keyOf(0), keyOf(1)}, plain: true}} {
		data, err := c.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, again, cmp.AllowUnexported(config{})); diff != "" {
			t.Errorf("read back: -before +after\n%s", diff)
		}
	}
	good, err := config{keys: []key{{"a", keyOf(0).Secret}, {"b", keyOf(1).Secret}}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		old, new string
		want     error
	}{
		"no YAML":            {"apiVersion:", "}apiVersion:", errUnreadable},
		"another kind":       {"EncryptionConfiguration", "Pod", errUnreadable},
		"a key too long":     {"secret: ", "secret: AAAA", errUnreadable},
		"a name twice":       {"name: b", "name: a", errUnreadable},
		"another provider":   {"secretbox:", "aesgcm:", errForeign},
		"other resources":    {resources, "secrets", errForeign},
		"a key management":   {"  - identity: {}", "  - identity: {}\n  - kms: {name: x}", errForeign},
		"several of a kind":  {"  - identity: {}", "  - identity: {}\n  - identity: {}", errForeign},
		"a colon in a name":  {"name: b", "name: 'b:c'", errUnreadable},
		"no name":            {"name: b", "name: ''", errUnreadable},
		"a key of its own":   {"name: b", "name: own", nil},
		"without a key list": {"secretbox:", "secretbox: {}\n  - secretbox:", errForeign},
	} {
		data := strings.Replace(string(good), tc.old, tc.new, 1)
		if data == string(good) {
			t.Errorf("%s: nothing was changed in\n%s", name, good)
		}
		_, err := decode([]byte(data))
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "name:") {
			t.Errorf("%s: the error has content: %v", name, err)
		}
	}
}

func TestNewKey(t *testing.T) {
	t.Parallel()
	a, b := newKey(start), newKey(start)
	if a.Name == b.Name || a.Secret == b.Secret {
		t.Error("two keys are alike")
	}
	if !a.made().Equal(start) {
		t.Errorf("%s was made at %s", a.Name, a.made())
	}
	if made := (key{Name: "mine"}).made(); !made.IsZero() {
		t.Errorf("a foreign key was made at %s", made)
	}
}
