// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// TestProcesses: with --sandboxes=processes, commands run in sandboxes, each of which has its own folder. A sandbox whose
// process ends has failed, also when the server was killed, and so has one that ran without the flag before.
func TestProcesses(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("sandlot-runtime is for Linux")
	}
	const ns = "default"
	dir := t.TempDir()
	// Sandboxes of a run in which nothing ran in them.
	s := startServer(t, dir)
	set := builders.Set("pool", 2)
	set.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
	if _, err := s.Client.AgentsV1alpha1().SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, s.Client.AgentsV1alpha1(), ns, "pool", 2)
	simulated := s.sandboxes(t, ns)
	s.Stop(t)
	s = startServer(t, dir, "--sandboxes=processes")
	s.awaitReplaced(t, ns, "pool", simulated)
	if out := s.Stdout.String(); !strings.Contains(out, "WARNING: processes isolate nothing") {
		t.Errorf("the server does not warn: %s", out)
	}
	sets := s.Client.AgentsV1alpha1().SandboxSets(ns)
	if _, err := sets.Create(t.Context(), builders.Set("plain", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// It belongs to no pool, and has no token.
	bare := builders.Sandbox("bare")
	bare.Labels, bare.Spec.Runtimes = nil, set.Spec.Runtimes
	if _, err := s.Client.AgentsV1alpha1().Sandboxes(ns).Create(t.Context(), bare, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitPhase(t, ns, "bare", v1alpha1.SandboxRunning)
	claim := builders.Claim("one", 1)
	claim.Spec.EnvVars = map[string]string{"GREETING": "hello"}
	if _, err := s.Client.AgentsV1alpha1().SandboxClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	name := s.sandboxOf(t, ns, "one")
	home := filepath.Join(dir, "sandboxes", ns, name)
	for _, each := range []struct {
		args           []string
		stdout, stderr string
		code           int
	}{
		{[]string{"exec", "sbc/one", "--", "sh", "-c", "echo $GREETING; pwd; echo $HOME; echo 1 > kept"}, "hello\n" + home + "\n" + home + "\n", "", 0},
		{[]string{"exec", "sbx/" + name, "--", "sh", "-c", "cat kept; echo oh >&2; exit 7"}, "1\n", "oh\n", 7},
		{[]string{"exec", "-i", "sbc/one", "--", "sh", "-c", "cat; echo end"}, "end\n", "", 0},
		{[]string{"exec", "sbc/one", "--", "sh", "-c", "kill -9 $$"}, "", "exit code 137", 137},
		{[]string{"exec", "sbc/one", "-c", "main", "--", "true"}, "", "leave out --container", 1},
		{[]string{"exec", "sbx/bare", "--", "true"}, "", "has no access token", 1},
		{[]string{"claim", "plain", "--rm", "--exec", "--", "true"}, "", "is simulated: this server has no pods", 1},
		{[]string{"exec", "sbc/one", "--", "sh", "-c", "kill -9 $PPID; while :; do :; done"}, "", "sh", 1},
	} {
		s.sandlot(t, each.args, each.stdout, each.stderr, each.code)
	}
	s.awaitPhase(t, ns, name, v1alpha1.SandboxFailed)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
			return errors.New("its folder is left")
		}
		return nil
	})

	s.sandlot(t, []string{"claim", "pool", "--name", "two", "--wait", "-o", "name"}, "sandboxclaim.agents.kruise.io/two\n", "", 0)
	name = s.sandboxOf(t, ns, "two")
	before := s.sandboxes(t, ns)
	s.Kill()
	for _, sandbox := range before {
		awaitNothingListens(t, sandbox.Status.SandboxIP)
	}
	s = startServer(t, dir, "--sandboxes=processes")
	s.awaitPhase(t, ns, name, v1alpha1.SandboxFailed)
	s.sandlot(t, []string{"claim", "pool", "--rm", "--exec", "--", "echo", "again"}, "again\n", "", 0)
	s.awaitReplaced(t, ns, "pool", before)
}

// awaitReplaced waits until none of these sandboxes, which have no processes, is in a pool any more.
func (s *server) awaitReplaced(t *testing.T, namespace, pool string, before map[string]*v1alpha1.Sandbox) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		for name, sandbox := range s.sandboxes(t, namespace) {
			if before[name] != nil && v1alpha1.IsInPool(sandbox) && sandbox.Labels[v1alpha1.LabelSandboxPool] == pool {
				return fmt.Errorf("%s is still in the pool, and has no process", name)
			}
		}
		return nil
	})
}

// sandlot runs a command of the program sandlot as its user does.
func (s *server) sandlot(t *testing.T, args []string, stdout, stderr string, code int) {
	t.Helper()
	p := program.Run(t, programs, "sandlot", append([]string{args[0], "--kubeconfig", s.Kubeconfig}, args[1:]...)...)
	got := p.Wait(t)
	if got != code || p.Stdout.String() != stdout || !strings.Contains(p.Stderr.String(), stderr) {
		t.Errorf("sandlot %q: exit code %d, it wrote %q and %q", args, got, p.Stdout.String(), p.Stderr.String())
	}
}

// sandboxOf returns the name of the sandbox of a claim of one, when it is there.
func (s *server) sandboxOf(t *testing.T, namespace, claim string) (name string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		got, err := s.Client.AgentsV1alpha1().SandboxClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(got.Status.Sandboxes) != 1 {
			return fmt.Errorf("claim %s: %+v", claim, got.Status)
		}
		name = got.Status.Sandboxes[0].Name
		return nil
	})
	return name
}

// awaitNothingListens waits until the agent-runtime of an address has ended.
func awaitNothingListens(t *testing.T, ip string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(v1alpha1.DefaultRuntimePort)))
		if err == nil {
			_ = conn.Close()
			return fmt.Errorf("%s listens", ip)
		}
		return nil
	})
}
