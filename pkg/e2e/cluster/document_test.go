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

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	pages "github.com/sandlot-io/sandlot/pkg/testutil/runbook"
)

// runbook runs commands of a page as they stand there, in a folder of its own.
type runbook struct {
	page            string
	dir, kubeconfig string
	blocks          map[string]string
	// replaced is what has to be another way here.
	replaced *strings.Replacer
}

// openRunbook reads the blocks of docs/operations.md.
func openRunbook(t *testing.T, kubeconfig string, oldnew ...string) *runbook {
	t.Helper()
	return openPage(t, "docs/operations.md", kubeconfig, oldnew...)
}

// openPage reads the blocks of a page that have a name.
func openPage(t *testing.T, page, kubeconfig string, oldnew ...string) *runbook {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository(t), filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	r := &runbook{page: page, dir: t.TempDir(), kubeconfig: kubeconfig, blocks: pages.Blocks(t, page), replaced: strings.NewReplacer(oldnew...)}
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(string(content), oldnew[i]) {
			t.Fatalf("%s has no %q", page, oldnew[i])
		}
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
			t.Fatalf("%s has no block %q", r.page, name)
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
	t.Logf("commands of %s, %v:\n%s", r.page, names, out)
	if err != nil {
		return string(out), fmt.Errorf("commands of %s, %v: %w\n%s", r.page, names, err, out)
	}
	return string(out), nil
}

func repository(t *testing.T) string {
	t.Helper()
	root, err := program.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}
