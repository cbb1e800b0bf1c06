// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	function = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	literal  = regexp.MustCompile(`"([a-z][a-z0-9-]*)"`)
	// namedTest and namedPackage are what docs name as code: a test, the beginning of the names of tests, or where
	// they are.
	namedTest    = regexp.MustCompile("^`((?:Test|Fuzz)[A-Z]\\w*)(\\*?)`$")
	namedPackage = regexp.MustCompile("^`((?:apis|artifacts|cmd|hack|pkg|registry)(?:/[a-z0-9]+)*)`$")
	namedFlag    = regexp.MustCompile("^`--([a-z0-9-]+)")
)

// sources are what of our Go files docs may name.
type sources struct {
	// tests are the tests of each folder, and words the strings in the code of programs, such as names of flags.
	tests map[string][]string
	words map[string]bool
}

func readSources(t *testing.T) sources {
	t.Helper()
	s := sources{tests: map[string][]string{}, words: map[string]bool{}}
	for _, dir := range []string{"apis", "artifacts", "cmd", "hack", "pkg", "registry"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" {
				return err
			}
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if !strings.HasSuffix(name, "_test.go") {
				for _, match := range literal.FindAllStringSubmatch(string(content), -1) {
					s.words[match[1]] = true
				}
				return nil
			}
			folder := path.Dir(strings.TrimPrefix(filepath.ToSlash(name), root+"/"))
			for _, match := range function.FindAllStringSubmatch(string(content), -1) {
				s.tests[folder] = append(s.tests[folder], match[1])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// has reports whether a test of a name, or of a name that begins so, is in a folder; anywhere if that is empty.
func (s sources) has(folder, name string, prefix bool) bool {
	is := func(test string) bool { return test == name || prefix && strings.HasPrefix(test, name) }
	for in, tests := range s.tests {
		if (folder == "" || in == folder) && slices.ContainsFunc(tests, is) {
			return true
		}
	}
	return false
}

// foldersOf returns the packages that stand before the tests of a part of security.md.
func foldersOf(spans []string) (folders []string) {
	for _, span := range spans {
		if match := namedPackage.FindStringSubmatch(span); match != nil {
			folders = append(folders, match[1])
		}
	}
	if len(folders) == 0 {
		return []string{"pkg/e2e/abuse"} // as it says
	}
	return folders
}

// TestNamedTests: the tests that the docs name exist, in security.md in the packages that it names.
func TestNamedTests(t *testing.T) {
	s := readSources(t)
	found := 0
	for name, p := range pages(t) {
		for i, line := range p.lines {
			for _, part := range strings.FieldsFunc(line, func(r rune) bool { return r == ';' || r == '|' || r == '(' }) {
				spans := codeSpan.FindAllString(part, -1)
				folders := []string{""}
				if name == "docs/security.md" {
					folders = foldersOf(spans)
				}
				for _, span := range spans {
					match := namedTest.FindStringSubmatch(span)
					if match == nil {
						continue
					}
					found++
					for _, folder := range folders {
						if !s.has(folder, match[1], match[2] != "") {
							t.Errorf("%s:%d names the test %s, which is not in %q", name, i+1, span, folder)
						}
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("the docs name no tests")
	}
}

// TestNamedFlags: the flags that security.md names exist.
func TestNamedFlags(t *testing.T) {
	ofKubernetes := []string{"request-timeout", "etcd-compaction-interval"}
	s := readSources(t)
	found := 0
	for i, line := range pages(t)["docs/security.md"].lines {
		for _, span := range codeSpan.FindAllString(line, -1) {
			match := namedFlag.FindStringSubmatch(span)
			if match == nil {
				continue
			}
			found++
			if !s.words[match[1]] && !slices.Contains(ofKubernetes, match[1]) {
				t.Errorf("docs/security.md:%d names the flag %s, which does not exist", i+1, span)
			}
		}
	}
	if found == 0 {
		t.Error("security.md names no flags")
	}
}
