// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest   = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z]*)(\\*?)`")
	definedTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
)

// TestDocsNameTestsThatExist looks for the tests by which the docs show what they say. A
// name that ends in * stands for all that begin with it.
func TestDocsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	defined := definedTests(t)
	docs, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatalf("no docs: %v", err)
	}
	named := 0
	for _, doc := range docs {
		content, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range namedTest.FindAllStringSubmatch(string(content), -1) {
			named++
			name, begins := match[1], match[2] != ""
			if !defined[name] && (!begins || !anyBegins(defined, name)) {
				t.Errorf("%s names %s, which is no test", doc, match[0])
			}
		}
	}
	if named == 0 {
		t.Error("no test is named")
	}
}

func anyBegins(names map[string]bool, prefix string) bool {
	for name := range names {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// definedTests returns the names of all tests of the repository.
func definedTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == "_output" || entry.Name() == ".git"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range definedTest.FindAllStringSubmatch(string(content), -1) {
			names[match[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
