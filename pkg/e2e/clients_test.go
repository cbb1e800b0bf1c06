// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// exampleClient is one of the programs of artifacts/example/clients.
type exampleClient struct {
	// needs is the program that has to be installed.
	needs string
	// command runs it for three sandboxes of a pool.
	command func(ctx context.Context, pool string) *exec.Cmd
	// check looks at the source where needs is missing.
	check []string
	// short is its exit status where there are too few sandboxes.
	short int
}

// The example clients claim, print the names, and leave nothing behind.
func TestExampleClients(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	for name, n := range map[string]int32{"stock": 3, "empty": 0} {
		if _, err := s.Client.AgentsV1alpha1().SandboxSets("default").Create(t.Context(), builders.Set(name, n), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	kubectl, err := findKubectl()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, cert, key := file("ca", s.Config.CAData), file("cert", s.Config.CertData), file("key", s.Config.KeyData)
	clients, err := filepath.Abs(filepath.Join("..", "..", "artifacts", "example", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	goClient := filepath.Join(dir, "client")
	if out, err := exec.Command("go", "build", "-o", goClient, filepath.Join(clients, "go")).CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	with := func(cmd *exec.Cmd, env ...string) *exec.Cmd {
		cmd.Env = append(os.Environ(), append(env, "HOME="+dir)...)
		return cmd
	}
	script := func(name string) string { return filepath.Join(clients, name) }
	for name, client := range map[string]exampleClient{
		"go": {command: func(ctx context.Context, pool string) *exec.Cmd {
			return with(exec.CommandContext(ctx, goClient, "--kubeconfig", s.Kubeconfig, "--pool", pool, "--replicas", "3"))
		}, short: 1},
		"kubectl": {command: func(ctx context.Context, pool string) *exec.Cmd {
			return with(exec.CommandContext(ctx, "bash", script("kubectl/claim.sh"), pool, "3"), "KUBECTL="+kubectl, "KUBECONFIG="+s.Kubeconfig)
		}, short: 75},
		"curl": {needs: "curl", command: func(ctx context.Context, pool string) *exec.Cmd {
			return with(exec.CommandContext(ctx, "bash", script("curl/claim.sh"), pool, "3"), "SERVER="+s.Config.Host,
				fmt.Sprintf("CURL_ARGS=--cacert %s --cert %s --key %s", ca, cert, key))
		}, check: []string{"bash", "-n", script("curl/claim.sh")}, short: 75},
		"python": {needs: "python3", command: func(ctx context.Context, pool string) *exec.Cmd {
			return with(exec.CommandContext(ctx, "python3", script("python/claim.py"), "--server", s.Config.Host,
				"--ca", ca, "--cert", cert, "--key", key, pool, "3"), "PYTHONDONTWRITEBYTECODE=1")
		}, check: []string{"test", "-s", script("python/claim.py")}, short: 75},
		"python with a kubeconfig": {needs: "python3", command: func(ctx context.Context, pool string) *exec.Cmd {
			return with(exec.CommandContext(ctx, "python3", script("python/claim.py"), "--kubeconfig", s.Kubeconfig, pool, "3"),
				"PYTHONDONTWRITEBYTECODE=1", "KUBECTL="+kubectl)
		}, check: []string{"test", "-s", script("python/claim.py")}, short: 75},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(client.needs); client.needs != "" && err != nil {
				if out, err := exec.Command(client.check[0], client.check[1:]...).CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				return
			}
			s.awaitAvailable(t, "stock", 3)
			out, stderr, code := runClient(t, client.command, "stock")
			if lines := strings.Fields(out); code != 0 || strings.Count(out, "stock-") != 3 || len(lines) < 3 {
				t.Errorf("ended with %d, printed:\n%s%s", code, out, stderr)
			}
			if list, err := s.Client.AgentsV1alpha1().SandboxClaims("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
				t.Errorf("%d claims are left, %v", len(list.Items), err)
			}
			if _, stderr, code := runClient(t, client.command, "nowhere"); code != 1 || !strings.Contains(stderr, "nowhere") {
				t.Errorf("without a pool it ended with %d and said:\n%s", code, stderr)
			}
			if _, stderr, code := runClient(t, client.command, "empty"); code != client.short {
				t.Errorf("with an empty pool it ended with %d and said:\n%s", code, stderr)
			}
		})
	}
}

// TestPythonExampleGivesUp: the example in Python does not repeat a request to a server that it cannot
// trust, and says that nothing is stored where it has sent nothing.
func TestPythonExampleGivesUp(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	s := startServer(t, t.TempDir())
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nothing := "https://" + closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ server, retryFor, says string }{
		"unknown authority": {s.Config.Host, "86400", "CERTIFICATE_VERIFY_FAILED"},
		"no server":         {nothing, "0", "it is not stored"},
	} {
		t.Run(name, func(t *testing.T) {
			_, stderr, code := runClient(t, func(ctx context.Context, pool string) *exec.Cmd {
				return exec.CommandContext(ctx, "python3", "-B", filepath.Join("..", "..", "artifacts", "example", "clients", "python", "claim.py"),
					"--server", tc.server, "--retry-for", tc.retryFor, pool)
			}, "stock")
			if code != 1 || !strings.Contains(stderr, tc.says) || strings.Contains(stderr, "may be stored") || strings.Contains(stderr, "Traceback") {
				t.Errorf("ended with %d and said:\n%s", code, stderr)
			}
		})
	}
}

func runClient(t *testing.T, command func(context.Context, string) *exec.Cmd, pool string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	cmd := command(ctx, pool)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return out.String(), complaints.String(), cmd.ProcessState.ExitCode()
}

// awaitAvailable waits until a claim of n sandboxes of a set would get them. The status of the set may not know yet what
// the last claim took.
func (s *server) awaitAvailable(t *testing.T, name string, n int32) {
	t.Helper()
	claim := builders.Claim("preview", n)
	claim.Spec.TemplateName, claim.Spec.OnShortage = name, v1alpha1.ShortageFail
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := s.Client.AgentsV1alpha1().SandboxClaims("default").Create(ctx, claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}
