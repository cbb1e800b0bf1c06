// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/realnode"
	"github.com/sandlot-io/sandlot/pkg/testutil/runbook"
)

// TestQuickstartOnKind runs the commands of the page for kind as they stand there, from the pool on.
// Its pool has an image that this node has.
func TestQuickstartOnKind(t *testing.T) {
	s := begin(t)
	const example = "artifacts/example/sandboxset.yaml"
	pool, err := os.ReadFile(filepath.Join(root(t), example))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "sandboxset.yaml")
	changed := strings.NewReplacer("python:3.13-slim", realnode.ShellImage, "replicas: 20", "replicas: 2").Replace(string(pool))
	if err := os.WriteFile(own, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	s.runPage("docs/quickstart-kind.md", strings.NewReplacer(example, own), "pool", "claim", "exec", "plugin", "release")
}

// TestQuickstartOnNode runs the commands of the page for a real node as they stand there, from the
// pool on.
func TestQuickstartOnNode(t *testing.T) {
	begin(t).runPage("docs/quickstart-node.md", strings.NewReplacer(), "pool", "claim")
}

func root(t *testing.T) string {
	t.Helper()
	root, err := program.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// runPage runs blocks of a page in one shell, in the namespace of the test, and looks for the output
// that the page promises.
func (s *story) runPage(page string, replaced *strings.Replacer, blocks ...string) {
	s.Helper()
	kubeconfig := filepath.Join(s.TempDir(), "kubeconfig")
	content, err := os.ReadFile(plane.Kubeconfig())
	if err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		s.Fatal(err)
	}
	script := "set -euo pipefail\nkubectl config set-context --current --namespace=" + s.namespace + "\n"
	commands := runbook.Blocks(s, page)
	for _, name := range blocks {
		if commands[name] == "" {
			s.Fatalf("%s has no block %q", page, name)
		}
		script += replaced.Replace(commands[name])
	}
	ctx, cancel := context.WithTimeout(s.Context(), 2*expect.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = root(s.T)
	path := filepath.Join(cmd.Dir, "bin") + string(filepath.ListSeparator) + os.Getenv("PATH")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+filepath.Dir(kubeconfig), "PATH="+path)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n6 * 7 = 42\n") {
		s.Errorf("%s: %v\n%s", page, err, out)
	}
}
