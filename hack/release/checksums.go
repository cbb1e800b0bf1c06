// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checksumsFile has the SHA-256 of every other file, as sha256sum writes and checks it.
const checksumsFile = "SHA256SUMS"

func writeChecksums(dir string) error {
	text, err := checksums(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, checksumsFile), []byte(text), 0o644)
}

// checksums are those of the files of a folder, except for what is made of them.
func checksums(dir string) (string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, file := range files {
		if name := file.Name(); name != checksumsFile && name != signatureFile {
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return "", err
			}
			lines = append(lines, fmt.Sprintf("%s  %s\n", digestOf(content), name))
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return strings.Join(lines, ""), nil
}
