// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/store/snapshot"
)

// TestAPIServer: an API server says of a snapshot which revision it has at least, and one of
// a version before that does not.
func TestAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		header string
		want   int64
		fails  bool
	}{
		"its revision":       {"7", 7, false},
		"no revision":        {"", 0, false},
		"another's revision": {"seven", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != snapshot.Path || r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("asked for %s with %v", r.URL, r.Header)
				}
				if tc.header != "" {
					w.Header().Set(snapshot.RevisionHeader, tc.header)
				}
				_, _ = w.Write([]byte("data"))
			}))
			defer server.Close()
			dir := t.TempDir()
			ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
			encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			for path, content := range map[string][]byte{ca: encoded, token: []byte("secret\n")} {
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			source, err := NewAPIServer(server.URL, ca, token)
			if err != nil {
				t.Fatal(err)
			}
			data, atLeast, err := source.Snapshot(t.Context())
			if (err != nil) != tc.fails || atLeast != tc.want {
				t.Fatalf("revision %d, %v", atLeast, err)
			}
			if err != nil {
				return
			}
			defer data.Close()
			if content, err := io.ReadAll(data); err != nil || string(content) != "data" {
				t.Errorf("%q, %v", content, err)
			}
		})
	}
}
