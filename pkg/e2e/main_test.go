// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// programs is the folder of the programs under test.
var programs string

// editorVariable makes this program an editor for kubectl edit.
const editorVariable = "SANDLOT_E2E_EDITOR"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if change := os.Getenv(editorVariable); change != "" {
		return edit(change, os.Args[len(os.Args)-1])
	}
	dir, err := os.MkdirTemp("", "sandlot-e2e-")
	if err != nil {
		return program.Complain(err)
	}
	defer os.RemoveAll(dir)
	programs = dir
	if err := program.Build(dir, "sandlot", "sandlot-apiserver", "sandlot-controller-manager", "kubectl-sandlot", "sandlot-runtime"); err != nil {
		return program.Complain(err)
	}
	return m.Run()
}

// edit replaces text in a file. change is what to replace, "=>", and with what.
func edit(change, file string) int {
	before, after, _ := strings.Cut(change, "=>")
	content, err := os.ReadFile(file)
	if err != nil {
		return program.Complain(err)
	}
	if !strings.Contains(string(content), before) {
		return program.Complain(fmt.Errorf("%q is not in what is to be edited:\n%s", before, content))
	}
	edited := strings.ReplaceAll(string(content), before, after)
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		return program.Complain(err)
	}
	return 0
}

// findKubectl returns the path of the kubectl to test with: the one that KUBECTL
// names, the one in bin/, the one on PATH, or else one that is built now.
var findKubectl = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("KUBECTL"); path != "" {
		return exec.LookPath(path)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	path, err := exec.LookPath(filepath.Join(root, "bin", "kubectl"))
	if err == nil {
		return path, nil
	}
	if path, err = exec.LookPath("kubectl"); err == nil {
		return path, nil
	}
	out, err := exec.Command(filepath.Join(root, "hack", "tool.sh"), "kubectl").Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w\n%s", err, failed.Stderr)
		}
		return "", fmt.Errorf("building kubectl: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})
