// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeNotes writes what CHANGELOG.md says of the release.
func writeNotes(o *options) error {
	text, err := os.ReadFile(filepath.Join(o.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	notes, err := section(string(text), o.version)
	if err != nil {
		return err
	}
	return os.WriteFile(o.file("NOTES.md"), []byte(notes), 0o644)
}

// section is what stands under the heading of a version.
func section(changelog, version string) (string, error) {
	var notes strings.Builder
	in := false
	for line := range strings.Lines(changelog) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			in = strings.TrimSpace(heading) == version
			continue
		}
		if in {
			notes.WriteString(line)
		}
	}
	text := strings.TrimSpace(notes.String())
	if text == "" {
		return "", fmt.Errorf("CHANGELOG.md says nothing under %q: move what is released there from %q", "## "+version, "## Unreleased")
	}
	return text + "\n", nil
}
