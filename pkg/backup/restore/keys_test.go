// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
	"sigs.k8s.io/yaml"
)

func config(resource string, providers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [" + resource + "]\n  providers:\n  - " +
		strings.Join(providers, "\n  - ") + "\n"
}

const (
	all      = `"*.agents.kruise.io"`
	identity = "identity: {}"
	ours     = "secretbox: {keys: [{name: key1, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}]}"
	next     = "secretbox: {keys: [{name: key2, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXowMTIzNDU=}]}"
	backups  = "secretbox: {keys: [{name: key1, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXowMTIzNDU=}]}"
)

// TestJoinKeys: with the joined configuration an API server reads what was written with either,
// and writes as the install does.
func TestJoinKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		now, old string
		writesAs string
		same     bool
		// providers is how many the joined configuration has, if it matters.
		providers int
	}{
		"none before": {now: "", old: config(all, backups, identity), writesAs: config(all, backups)},
		"another key": {now: config(all, ours, identity), old: config(all, backups, identity), writesAs: config(all, ours)},
		// One of each kind, or sandlot-controller-manager would not take it for its own.
		"a key of another name": {now: config(all, ours, identity), old: config(all, next, identity), writesAs: config(all, ours), providers: 2},
		"the same":              {now: config(all, ours, identity), old: config(all, ours, identity), writesAs: config(all, ours), same: true},
		"an older one":          {now: config(all, ours, backups, identity), old: config(all, backups), writesAs: config(all, ours), same: true},
		"a backup that is not":  {now: config(all, ours), old: "", writesAs: config(all, ours), providers: 2},
		"neither":               {now: config(all, ours, identity), old: "", writesAs: config(all, ours), same: true},
		"not encrypted":         {now: config(all, identity), old: config(all, backups, identity), writesAs: config(all, identity)},
	} {
		t.Run(name, func(t *testing.T) {
			joined, err := joinKeys([]byte(tc.now), []byte(tc.old))
			if err != nil {
				t.Fatal(err)
			}
			if tc.same && string(joined) != tc.now {
				t.Errorf("it has changed to\n%s", joined)
			}
			var file encryptionConfig
			if err := yaml.Unmarshal(joined, &file); err != nil {
				t.Fatal(err)
			}
			if got := len(file.Resources[0].Providers); tc.providers != 0 && got != tc.providers {
				t.Errorf("%d providers, want %d:\n%s", got, tc.providers, joined)
			}
			both := load(t, string(joined))
			data := value.DefaultContext("key")
			for _, writer := range []string{tc.now, tc.old} {
				if writer == "" {
					writer = config(all, identity)
					if tc.now == "" {
						continue // there is no store that it would have to read
					}
				}
				stored, err := load(t, writer).TransformToStorage(t.Context(), []byte("text"), data)
				if err != nil {
					t.Fatal(err)
				}
				if text, _, err := both.TransformFromStorage(t.Context(), stored, data); err != nil || string(text) != "text" {
					t.Errorf("what was written with\n%s\nis read as %q, %v", writer, text, err)
				}
			}
			stored, err := both.TransformToStorage(t.Context(), []byte("text"), data)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := load(t, tc.writesAs).TransformFromStorage(t.Context(), stored, data); err != nil {
				t.Errorf("it writes with another key than %s: %v", tc.writesAs, err)
			}
		})
	}
}

func TestJoinKeysOfOtherResources(t *testing.T) {
	if joined, err := joinKeys([]byte(config(all, ours)), []byte(config("sandboxes.agents.kruise.io", backups))); err == nil {
		t.Errorf("rules that cannot be joined have become\n%s", joined)
	}
}

func load(t *testing.T, text string) value.Transformer {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := encryptionconfig.LoadEncryptionConfig(t.Context(), path, false, "")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return encryptionconfig.StaticTransformers(loaded.Transformers).TransformerForResource(schema.GroupResource{Group: "agents.kruise.io", Resource: "sandboxes"})
}
