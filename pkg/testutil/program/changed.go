// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Change is a change of a source file.
type Change struct {
	// File is a path from the folder of go.mod. It has the text Before exactly once, which After replaces.
	File, Before, After string
}

// Overlay writes the changed file into a folder, and returns the path of a file there for -overlay of go build
// and go test. root is the folder of go.mod.
func (c Change) Overlay(root, dir string) (string, error) {
	original, err := filepath.Abs(filepath.Join(root, c.File))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), c.Before); n != 1 {
		return "", fmt.Errorf("%s has the text %q %d times, want once", c.File, c.Before, n)
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(
		os.WriteFile(changed, []byte(strings.Replace(string(source), c.Before, c.After, 1)), 0o600),
		os.WriteFile(overlay, replace, 0o600))
}

// BuildChanged is Build of sources with a change.
func BuildChanged(dir string, change Change, names ...string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := Root()
	if err != nil {
		return err
	}
	overlay, err := change.Overlay(root, dir)
	if err != nil {
		return err
	}
	return buildIn(root, dir, names, "-overlay", overlay)
}
