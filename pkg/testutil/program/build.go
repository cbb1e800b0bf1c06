// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles programs of cmd/ into a folder, as a release is compiled, and as make build has done.
func Build(dir string, names ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	return buildIn(root, dir, names)
}

// buildIn compiles programs of the sources that are in a folder.
func buildIn(root, dir string, names []string) error {
	args := []string{"build", "-trimpath", "-o", dir + string(filepath.Separator)}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the programs of %s: %w\n%s", root, err, out)
	}
	return nil
}

// Root returns the folder of the repository that the working directory is in.
func Root() (string, error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("finding the root of the repository: %w", err)
	}
	return filepath.Dir(string(bytes.TrimSpace(mod))), nil
}
