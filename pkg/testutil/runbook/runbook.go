// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runbook reads the commands of pages of the docs, for tests that run them as they stand there.
package runbook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// Blocks returns the blocks of a page that have a name, which is the word after "sh" in their first
// line, by that name.
func Blocks(t testing.TB, page string) map[string]string {
	t.Helper()
	root, err := program.Root()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, part := range strings.Split(string(content), "\n```sh ")[1:] {
		name, rest, _ := strings.Cut(part, "\n")
		commands, _, found := strings.Cut(rest, "\n```\n")
		if _, twice := blocks[name]; twice || !found {
			t.Fatalf("%s has two blocks %q, or it has no end", page, name)
		}
		blocks[name] = commands + "\n"
	}
	return blocks
}
