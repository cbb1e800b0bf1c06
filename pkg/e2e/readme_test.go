// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadme runs the lines of kubectl in README.md, in their order, as they stand there,
// against a server as make run starts it, and looks up the others.
func TestReadme(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	readme, run, makefile := read(t, root, "README.md"), read(t, root, "hack/run.sh"), read(t, root, "Makefile")
	for _, target := range regexp.MustCompile("(?m)^    make ([a-z0-9-]+)").FindAllStringSubmatch(readme, -1) {
		if !strings.Contains(makefile, "\n"+target[1]+":") {
			t.Errorf("there is no make %s", target[1])
		}
	}
	for _, file := range regexp.MustCompile(`\]\(([^)#:]+)[)#]`).FindAllStringSubmatch(readme, -1) {
		if _, err := os.Stat(filepath.Join(root, file[1])); err != nil {
			t.Errorf("README.md links to what is not there: %v", err)
		}
	}
	if !strings.Contains(readme, "\n    export KUBECONFIG=$PWD/_output/run.kubeconfig\n") || !strings.Contains(run, `kubeconfig="$PWD/_output/run.kubeconfig"`) {
		t.Error("README.md and hack/run.sh do not name the same kubeconfig")
	}

	s := startServer(t, t.TempDir())
	k := kubectlFor(t, s, "default")
	lines := regexp.MustCompile("(?m)^    bin/(kubectl .*)$").FindAllStringSubmatch(readme, -1)
	if len(lines) < 8 {
		t.Fatalf("there are %d lines to run", len(lines))
	}
	bin := t.TempDir()
	if err := os.Symlink(k.path, filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for _, line := range lines {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", filepath.Join(bin, line[1]))
		cmd.Dir, cmd.Env = root, k.env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", line[1], err, out)
		}
		said.Write(out)
		if !strings.Contains(line[1], "custom-columns") && !strings.HasPrefix(line[1], "kubectl delete") && !strings.Contains(run, "bin/"+line[1]+"\n") {
			t.Errorf("make run does not print %s", line[1])
		}
	}
	if !regexp.MustCompile(`one-\w+ +Completed +True +1 +Successfully claimed 1/1 sandboxes`).MatchString(said.String()) {
		t.Errorf("the lines do not show what became of the claim:\n%s", said.String())
	}
	for _, header := range regexp.MustCompile("(?m)^(NAME .*)$").FindAllStringSubmatch(readme, -1) {
		if !strings.Contains(said.String(), header[1]+"\n") {
			t.Errorf("no line prints %q:\n%s", header[1], said.String())
		}
	}
	if left := k.do(t, "get", "sandboxclaims,sandboxsets", "-o", "name"); left != "" {
		t.Errorf("there is still %s", left)
	}
}

func read(t *testing.T, root, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
