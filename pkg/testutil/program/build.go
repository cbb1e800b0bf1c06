// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// builtVariable names a folder with the programs of cmd/, built from these sources, such as
// bin/ after make build. CI sets it, where several packages would link the same programs.
const builtVariable = "SANDLOT_BUILT"

// Build puts programs of cmd/ into a folder, compiled as a release is compiled, and as make
// build has done.
func Build(dir string, names ...string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if built := os.Getenv(builtVariable); built != "" {
		return linkAll(built, dir, names)
	}
	root, err := Root()
	if err != nil {
		return err
	}
	return buildIn(root, dir, names)
}

// linkAll puts links to programs of one folder into another. Copies could not be run at once:
// a process that is forked at the time has them open.
func linkAll(from, to string, names []string) error {
	for _, name := range names {
		program := filepath.Join(from, name)
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("%s=%s: %w", builtVariable, from, err)
		}
		if err := os.Symlink(program, filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// buildIn compiles programs of the sources that are in a folder. flags are more flags of go build.
func buildIn(root, dir string, names []string, flags ...string) error {
	args := append([]string{"build", "-trimpath", "-o", dir + string(filepath.Separator)}, flags...)
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

// Root returns the folder of the go.mod above the working directory.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("there is no go.mod in %s or above", start)
		}
	}
}
