// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// TestPlugin uses "kubectl sandlot" in a cluster: who is asked for by --mine, which
// namespaces there are, and commands in the pods of sandboxes. The nodes of a cluster
// without kubelets are answered for by an execKubelet.
func TestPlugin(t *testing.T) {
	plugins := t.TempDir()
	if err := program.Build(plugins, "kubectl-sandlot"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("kubectl-sandlot", filepath.Join(plugins, "kubectl_complete-sandlot")); err != nil {
		t.Fatal(err)
	}
	root, err := program.Root()
	if err != nil {
		t.Fatal(err)
	}
	ns, c := namespace(t), admin(t)
	kubelet := playExec(t)
	expect.FilledPool(t, c, ns, 4)
	run := func(stdin string, args ...string) (string, string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "kubectl"), args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig(), "HOME="+plugins, "PATH="+plugins+string(os.PathListSeparator)+os.Getenv("PATH"))
		var stdout, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		err := cmd.Run()
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			t.Fatal(err)
		}
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	says := func(stdout, stderr string, code, wantCode int, wantOut, wantErr string) {
		t.Helper()
		if code != wantCode || stdout != wantOut || !strings.Contains(stderr, wantErr) {
			t.Errorf("ended with %d and said:\n%s%s\nwant %d and\n%s%s", code, stdout, stderr, wantCode, wantOut, wantErr)
		}
	}

	stdout, stderr, code := run("", "sandlot", "claim", "pool", "-n", ns, "--name", "kept", "-o", "name")
	says(stdout, stderr, code, 0, "sandboxclaim.agents.kruise.io/kept\n", "")
	claim, err := c.SandboxClaims(ns).Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sandbox := expect.Claimed(t, claim, 1)[0]

	// Words reach the container as they are, in the container that is asked for.
	stdout, stderr, code = run("", "sandlot", "exec", "-n", ns, "kept", "--", "echo", "$(id); a b", "--", "0")
	says(stdout, stderr, code, 0, `ran ["echo" "$(id); a b" "--" "0"]`+"\n", "")
	if want := fmt.Sprintf("/exec/%s/%s/main echo|$(id); a b|--|0", ns, sandbox); strings.Join(kubelet.requests(), "\n") != want {
		t.Errorf("the kubelet was asked for %q, want %q", kubelet.requests(), want)
	}
	stdout, stderr, code = run("typed\n", "sandlot", "exec", "-n", ns, sandbox, "-i", "--", "cat")
	says(stdout, stderr, code, 0, "ran [\"cat\"]\ntyped\n", "")
	stdout, stderr, code = run("", "sandlot", "exec", "-n", ns, "sbx/"+sandbox, "--", "exit", "7")
	says(stdout, stderr, code, 7, "ran [\"exit\" \"7\"]\n", "exit code 7")
	stdout, stderr, code = run("", "sandlot", "exec", "-n", ns, "kept", "-c", "absent", "--", "true")
	says(stdout, stderr, code, 1, "", "container absent is not valid")

	// One after the other, and they go with the claim; the code is that of the command.
	stdout, stderr, code = run("", "sandlot", "claim", "pool", "-n", ns, "--name", "once", "-r", "2", "--rm", "--exec", "--", "echo", "0")
	says(stdout, stderr, code, 0, strings.Repeat("ran [\"echo\" \"0\"]\n", 2), "sandboxclaim once deleted, with its sandboxes")
	stdout, stderr, code = run("", "sandlot", "claim", "pool", "-n", ns, "--name", "bad", "--exec", "--rm", "-q", "--", "exit", "3")
	says(stdout, stderr, code, 3, "ran [\"exit\" \"3\"]\n", "exit code 3")

	stdout, stderr, code = run("", "sandlot", "list", "-n", ns, "--mine", "-o", "name")
	if code != 0 || !strings.HasPrefix(stdout, "sandboxclaim.agents.kruise.io/kept\n") || strings.Contains(stdout, "once") {
		t.Errorf("list --mine ended with %d and said:\n%s%s", code, stdout, stderr)
	}
	if stdout, stderr, code = run("", "__complete", "sandlot", "list", "-n", ""); code != 0 || !strings.Contains(stdout, "\n"+ns+"\n") {
		t.Errorf("completing namespaces ended with %d and said:\n%s%s", code, stdout, stderr)
	}
	stdout, stderr, code = run("", "sandlot", "release", "-n", ns, "kept", "--all")
	says(stdout, stderr, code, 0, "sandbox.agents.kruise.io/"+sandbox+" released\n", "")
}
