// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// runbook runs commands of docs/operations.md as they stand there, in a folder of
// its own.
type runbook struct {
	dir, kubeconfig string
	blocks          map[string]string
	// replaced is what has to be another way here.
	replaced *strings.Replacer
}

// openRunbook reads the blocks that have a name, which is the word after "sh" in
// their first line.
func openRunbook(t *testing.T, kubeconfig string, oldnew ...string) *runbook {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository(t), "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	r := &runbook{dir: t.TempDir(), kubeconfig: kubeconfig, blocks: map[string]string{}, replaced: strings.NewReplacer(oldnew...)}
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(string(content), oldnew[i]) {
			t.Fatalf("docs/operations.md has no %q", oldnew[i])
		}
	}
	for _, part := range strings.Split(string(content), "\n```sh ")[1:] {
		name, rest, _ := strings.Cut(part, "\n")
		commands, _, found := strings.Cut(rest, "\n```\n")
		if _, twice := r.blocks[name]; twice || !found {
			t.Fatalf("docs/operations.md has two blocks %q, or it has no end", name)
		}
		r.blocks[name] = commands + "\n"
	}
	return r
}

// run runs blocks one after the other, in one shell, and returns what they wrote.
func (r *runbook) run(t *testing.T, names ...string) string {
	t.Helper()
	out, err := r.try(t, names...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try is run for commands that may fail.
func (r *runbook) try(t *testing.T, names ...string) (string, error) {
	t.Helper()
	script := "set -euo pipefail\n"
	for _, name := range names {
		commands, ok := r.blocks[name]
		if !ok {
			t.Fatalf("docs/operations.md has no block %q", name)
		}
		script += r.replaced.Replace(commands)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*expect.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = r.dir
	path := strings.Join([]string{programs, filepath.Join(repository(t), "bin"), os.Getenv("PATH")}, string(filepath.ListSeparator))
	cmd.Env = append(os.Environ(), "PATH="+path, "KUBECONFIG="+r.kubeconfig, "HOME="+r.dir)
	out, err := cmd.CombinedOutput()
	t.Logf("commands of docs/operations.md, %v:\n%s", names, out)
	if err != nil {
		return string(out), fmt.Errorf("commands of docs/operations.md, %v: %w\n%s", names, err, out)
	}
	return string(out), nil
}

func repository(t *testing.T) string {
	t.Helper()
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}
