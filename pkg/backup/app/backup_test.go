// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"encoding/pem"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/backup/app"
	"github.com/sandlot-io/sandlot/pkg/cli"
	"github.com/sandlot-io/sandlot/pkg/store/snapshot"
)

// TestBackupOfBreach: a store that breaks an invariant is backed up, and the program ends with the
// code that the CronJob has a rule for.
func TestBackupOfBreach(t *testing.T) {
	client := startEtcd(t, filepath.Join(t.TempDir(), "data"))
	putSandbox(t, client, "one", metav1.ObjectMeta{UID: "1"})
	dir, target := t.TempDir(), t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	server := httptest.NewTLSServer(&snapshot.Handler{Etcd: client})
	defer server.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(token, []byte("x"), 0o600), os.WriteFile(ca, certificate, 0o600)); err != nil {
		t.Fatal(err)
	}
	// backup runs the program and returns what it prints, and its exit code.
	backup := func() (string, int) {
		var out strings.Builder
		cmd := app.NewBackupCommand()
		cmd.SetArgs([]string{"--target", target, "--apiserver", server.URL, "--ca-file", ca, "--token-file", token, "--keep", "1", "--scratch-dir", dir})
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		code := cli.Report(&out, cmd.ExecuteContext(t.Context()))
		return out.String(), code
	}
	if out, code := backup(); code != 0 || !strings.Contains(out, "well") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	putSandbox(t, client, "two", metav1.ObjectMeta{UID: "1"}) // the UID of another
	for range 2 {
		if out, code := backup(); code != app.ExitBreach || !strings.Contains(out, "breaks invariants") {
			t.Fatalf("exit code %d: %s", code, out)
		}
	}
	// That of the time when it was well, and the newest of those after it.
	left, err := os.ReadDir(target)
	if err != nil || len(left) != 2 || strings.Contains(left[0].Name(), "breached") || !strings.Contains(left[1].Name(), "breached") {
		t.Errorf("the target has %v, %v", left, err)
	}
}
