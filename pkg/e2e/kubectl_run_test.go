// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// kubectl runs the real kubectl against a server, in one namespace.
type kubectl struct {
	server    *server
	path      string
	namespace string
	env       []string
}

// kubectlFor returns a kubectl for a namespace. Nothing of it is shared with the
// user who runs the test but the program.
func kubectlFor(t testing.TB, s *server, namespace string) *kubectl {
	t.Helper()
	path, err := findKubectl()
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "HOME="+t.TempDir())
	return &kubectl{server: s, path: path, namespace: namespace, env: env}
}

func (k *kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.path, append([]string{"--namespace", k.namespace}, args...)...)
	cmd.Env = k.env
	return cmd
}

// run runs kubectl with something to read from stdin.
func (k *kubectl) run(t testing.TB, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	cmd := k.command(ctx, args...)
	var out, complaints bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaints
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited || ctx.Err() != nil {
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), complaints.String(), cmd.ProcessState.ExitCode()
}

// told are warnings of what many stories do on purpose, and in which they may or may not
// come: testWarnings is about them.
var told = regexp.MustCompile(`(?m)^Warning: (claimed \d+/\d+ so far|claimed \d+/\d+: SandboxSet \S+ not found|` +
	`\d+ (claimed )?sandbox(es)? of .* stays?\b|spec\.ttlAfterCompleted: the claim is deleted |(SandboxTemplate \S+|templates that are deleted) (is|are) in use: ).*\n`)

// do runs kubectl and requires that it succeeds without a word on stderr, where
// its warnings go, except for those in told.
func (k *kubectl) do(t testing.TB, args ...string) string {
	t.Helper()
	return k.feed(t, "", args...)
}

// feed is do with something to read for -f -.
func (k *kubectl) feed(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	stdout, stderr, code := k.run(t, stdin, args...)
	if code != 0 || told.ReplaceAllString(stderr, "") != "" {
		t.Fatalf("kubectl %s ended with %d and said:\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// fail runs kubectl, requires that it fails, and that stderr says all of wants.
func (k *kubectl) fail(t testing.TB, stdin string, args []string, wants ...string) {
	t.Helper()
	stdout, stderr, code := k.run(t, stdin, args...)
	if code == 0 {
		t.Fatalf("kubectl %s succeeded:\n%s", strings.Join(args, " "), stdout)
	}
	for _, want := range wants {
		if !strings.Contains(stderr, want) {
			t.Errorf("kubectl %s does not say %q:\n%s", strings.Join(args, " "), want, stderr)
		}
	}
}

// claim runs a command that prints a claim as JSON.
func (k *kubectl) claim(t testing.TB, stdin string, args ...string) *v1alpha1.SandboxClaim {
	t.Helper()
	out := k.feed(t, stdin, append(args, "-o", "json")...)
	claim := &v1alpha1.SandboxClaim{}
	if err := json.Unmarshal([]byte(out), claim); err != nil {
		t.Fatalf("kubectl %s did not print a claim: %v\n%s", strings.Join(args, " "), err, out)
	}
	return claim
}

// header returns the names of the columns in the first line of a table.
func header(table string) []string {
	first, _, _ := strings.Cut(table, "\n")
	return strings.Fields(first)
}
