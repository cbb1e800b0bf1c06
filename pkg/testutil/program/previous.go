// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// previousFile, below the root, names the tag or commit of the release before this one. The
// release steps keep it.
const previousFile = "hack/previous-release"

// BuildPrevious compiles programs of the release before this one, from the history of the
// repository, and returns their folder. They are kept in _output/previous for the next
// time.
func BuildPrevious(names ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(root, previousFile))
	if err != nil {
		return "", fmt.Errorf("reading which release is the previous one: %w", err)
	}
	named := strings.TrimSpace(string(content))
	commit, err := git(root, "rev-parse", "--verify", "--quiet", named+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("this clone does not have %s, the previous release by %s: "+
			"fetch the whole history and the tags (git fetch --unshallow --tags), or correct the file: %w", named, previousFile, err)
	}
	sources, err := checkOut(root, string(bytes.TrimSpace(commit)))
	if err != nil {
		return "", fmt.Errorf("getting the sources of %s: %w", named, err)
	}
	programs := filepath.Join(sources, "bin")
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return "", err
	}
	return programs, buildIn(sources, programs, names)
}

// checkOut returns a folder with the sources of a commit. It is always the same one, and so
// what the compiler remembers of it can be used.
func checkOut(root, commit string) (string, error) {
	all := filepath.Join(root, "_output", "previous")
	sources := filepath.Join(all, commit)
	if _, err := os.Stat(sources); !errors.Is(err, fs.ErrNotExist) {
		return sources, err
	}
	if err := os.MkdirAll(all, 0o755); err != nil {
		return "", err
	}
	// Moved into place when it is whole.
	unfinished, err := os.MkdirTemp(all, "unfinished-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(unfinished)
	archive := filepath.Join(unfinished, "sources.tar")
	if _, err := git(root, "archive", "--format=tar", "--output="+archive, commit); err != nil {
		return "", err
	}
	extracted := filepath.Join(unfinished, "sources")
	if err := os.Mkdir(extracted, 0o755); err != nil {
		return "", err
	}
	if out, err := exec.Command("tar", "--extract", "--file", archive, "--directory", extracted).CombinedOutput(); err != nil {
		return "", fmt.Errorf("tar: %w: %s", err, out)
	}
	if err := os.Rename(extracted, sources); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return sources, nil
}

// git runs git in a clone that may belong to another user, as in CI.
func git(root string, args ...string) ([]byte, error) {
	var errOut bytes.Buffer
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", root}, args...)...)
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(errOut.Bytes()))
	}
	return out, nil
}
