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

const root = "../.."

var (
	heading = regexp.MustCompile(`^#{1,6} (.+)$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// pointer is how messages name a section of the docs: "docs/install.md, The store".
	pointer = regexp.MustCompile(`(docs/[a-z0-9-]+\.md), ([A-Z][^"\\]*)"`)
	// noSlug is what GitHub leaves out of the anchor of a heading.
	noSlug = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// A page is a file of the docs, without its blocks of code.
type page struct {
	lines    []string
	headings []string
	anchors  []string
}

// pages reads all docs, by their paths below the root.
func pages(t *testing.T) map[string]page {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no docs: %v", err)
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "GOVERNANCE.md", "ROADMAP.md", "artifacts/example/README.md", "artifacts/deploy/chart/sandlot/README.md"} {
		names = append(names, filepath.Join(root, name))
	}
	all := map[string]page{}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var p page
		code := false
		for line := range strings.SplitSeq(string(content), "\n") {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if code || strings.HasPrefix(line, "    ") {
				line = ""
			}
			p.lines = append(p.lines, line)
			if match := heading.FindStringSubmatch(line); match != nil {
				p.headings = append(p.headings, match[1])
				slug := noSlug.ReplaceAllString(strings.ToLower(match[1]), "")
				p.anchors = append(p.anchors, strings.ReplaceAll(slug, " ", "-"))
			}
		}
		all[strings.TrimPrefix(filepath.ToSlash(name), root+"/")] = p
	}
	return all
}

// TestLinks looks up what the docs link to: files of the repository, and headings.
func TestLinks(t *testing.T) {
	all := pages(t)
	links := 0
	for name, p := range all {
		for i, line := range p.lines {
			for _, match := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(match[1], "://") || strings.HasPrefix(match[1], "mailto:") {
					continue
				}
				links++
				file, anchor, _ := strings.Cut(match[1], "#")
				target := name
				if file != "" {
					target = path.Join(path.Dir(name), file)
				}
				if _, err := os.Stat(filepath.Join(root, target)); err != nil {
					t.Errorf("%s:%d links to %s, which does not exist", name, i+1, match[1])
				} else if to, ok := all[target]; ok && anchor != "" && !slices.Contains(to.anchors, anchor) {
					t.Errorf("%s:%d links to %s, which is no heading", name, i+1, match[1])
				}
			}
		}
	}
	if links == 0 {
		t.Error("there are no links")
	}
}

// TestAnchorsAreUnique: a link to the second of two equal headings would lead to the first.
func TestAnchorsAreUnique(t *testing.T) {
	for name, p := range pages(t) {
		for i, anchor := range p.anchors {
			if slices.Contains(p.anchors[:i], anchor) {
				t.Errorf("%s has two headings %q", name, p.headings[i])
			}
		}
	}
}

var (
	item     = regexp.MustCompile(`^\s*(-|\d+\.) `)
	codeSpan = regexp.MustCompile("`[^`]*`")
	end      = regexp.MustCompile(`[.!?](\*\*)?\s+`)
	word     = regexp.MustCompile(`[\p{L}\p{N}][\p{L}\p{N}'’.,/-]*`)
)

// TestSentencesOfLists: in lists, which Vale does not divide into sentences, they are as short as
// hack/prose/styles/Docs/Sentences.yml has them elsewhere.
func TestSentencesOfLists(t *testing.T) {
	const longest = 40
	items := 0
	for name, p := range pages(t) {
		for i, line := range p.lines {
			if !item.MatchString(line) {
				continue
			}
			items++
			line = link.ReplaceAllString(codeSpan.ReplaceAllString(line, "``"), "]")
			for _, sentence := range end.Split(line, -1) {
				if words := len(word.FindAllString(sentence, -1)); words > longest {
					t.Errorf("%s:%d has a sentence of %d words: %.80s…", name, i+1, words, strings.TrimSpace(sentence))
				}
			}
		}
	}
	if items == 0 {
		t.Error("there are no lists")
	}
}

// TestPointers looks up the sections of the docs that messages of the programs name.
func TestPointers(t *testing.T) {
	all := pages(t)
	found := 0
	for _, dir := range []string{"cmd", "pkg", "registry"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			for _, match := range pointer.FindAllStringSubmatch(string(content), -1) {
				found++
				if !slices.Contains(all[match[1]].headings, match[2]) {
					t.Errorf("%s names %q of %s, which is no heading", name, match[2], match[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Error("no message names a section")
	}
}
