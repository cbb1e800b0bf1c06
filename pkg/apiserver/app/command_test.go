// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/apiserver/app"
	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const secret = "correct horse battery staple"

func TestMain(m *testing.M) {
	// Logs are set up once a process, before anything else, and each test is a
	// process to the command.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	if err := logsapi.ValidateAndApply(logsapi.NewLoggingConfiguration(), nil); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// The program alone, with what an operator may want of it: a certificate from a
// file, encryption at rest, an audit log.
func TestRun(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	pki, err := localpki.Ensure(filepath.Join(dir, "pki"), []string{"127.0.0.1"}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	host := "127.0.0.1:" + freePort(t)
	auditLog := filepath.Join(dir, "audit.log")
	data := filepath.Join(dir, "data")
	args := []string{
		"--bind-address=127.0.0.1", "--secure-port=" + strings.Split(host, ":")[1],
		"--tls-cert-file=" + file("tls.crt", string(pki.Serving.Cert)), "--tls-private-key-file=" + file("tls.key", string(pki.Serving.Key)),
		"--client-ca-file=" + file("ca.crt", string(pki.CA)),
		"--embedded-etcd-dir=" + data,
		"--encryption-provider-config=" + file("encryption.yaml", encryptionConfig()),
		"--audit-log-path=" + auditLog, "--audit-policy-file=" + file("audit.yaml", auditPolicy),
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- execute(ctx, args...) }()

	client, err := rest.HTTPClientFor(&rest.Config{
		Host:            "https://" + host,
		TLSClientConfig: rest.TLSClientConfig{CAData: pki.CA, CertData: pki.Admin.Cert, KeyData: pki.Admin.Key},
	})
	if err != nil {
		t.Fatal(err)
	}
	waitReady(t, client, "https://"+host, ended)

	template := `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxTemplate","metadata":{"name":"a"},"spec":{"template":` +
		`{"spec":{"containers":[{"name":"main","image":"python","args":["` + secret + `"]}]}}}}`
	resp, err := client.Post("https://"+host+"/apis/agents.kruise.io/v1alpha1/namespaces/default/sandboxtemplates", "application/json", strings.NewReader(template))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("creating a template: %s", resp.Status)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the run ended with %v", err)
	}

	audit, err := os.ReadFile(auditLog)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"verb":"create","user":{"username":"sandlot-admin"`; !strings.Contains(string(audit), want) {
		t.Errorf("the audit log lacks %s:\n%s", want, audit)
	}
	if file := findIn(t, data, secret); file != "" {
		t.Errorf("%s holds what should be encrypted", file)
	}
}

func TestRunFails(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	pki, err := localpki.Ensure(filepath.Join(dir, "pki"), nil, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, pki.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "pki")
	cases := map[string]struct {
		args    []string
		wantErr string
		slow    bool
	}{
		"no options":         {wantErr: "one of --etcd-servers and --embedded-etcd-dir is required"},
		"unknown flag":       {args: []string{"--bogus"}, wantErr: "unknown flag: --bogus"},
		"argument":           {args: []string{"bogus"}, wantErr: "unknown command"},
		"foreign folder":     {args: []string{"--client-ca-file=" + ca, "--embedded-etcd-dir=" + foreign}, wantErr: "not a data folder"},
		"missing kubeconfig": {args: []string{"--kubeconfig=/missing", "--etcd-servers=http://127.0.0.1:1"}, wantErr: "/missing"},
		"unreachable etcd":   {args: []string{"--client-ca-file=" + ca, "--etcd-servers=http://127.0.0.1:1"}, wantErr: "storage in etcd at [http://127.0.0.1:1]", slow: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.slow && testing.Short() {
				t.Skip("waits 20 seconds for etcd")
			}
			err := execute(t.Context(), append(tc.args, "--bind-address=127.0.0.1", "--secure-port="+freePort(t))...)
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("got %v, want an error with %q", err, tc.wantErr)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %v", err)
			}
		})
	}
}

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: Metadata}]
`

func encryptionConfig() string {
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32))
	return fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: ["*.agents.kruise.io"]
  providers:
  - secretbox: {keys: [{name: k, secret: %s}]}
`, key)
}

func execute(ctx context.Context, args ...string) error {
	cmd := app.NewCommand()
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

func waitReady(t *testing.T, client *http.Client, server string, ended <-chan error) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		select {
		case err := <-ended:
			t.Fatalf("the run ended: %v", err)
		default:
		}
		resp, err := client.Get(server + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the server is not ready: %s", resp.Status)
		}
		return nil
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// findIn returns the first file below dir that contains text.
func findIn(t *testing.T, dir, text string) string {
	t.Helper()
	found := ""
	files := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			found = path
		}
		return err
	})
	if err != nil || files < 3 {
		t.Fatalf("looked at %d files: %v", files, err)
	}
	return found
}
