// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command measure prints how large the project is and how it is built, and fails when a
// bar is missed that docs/development.md sets. It is run in the root of the repository.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The bars.
const (
	maxProduct  = 30_600 // lines of product code
	maxSupport  = 54_000 // lines of tests and of what only they use
	maxMedian   = 120    // lines of a product file
	maxFile     = 400
	maxMethods  = 15 // of a type of the core
	maxFields   = 12
	maxWalk     = 11 // files to open to follow a warm claim
	planPackage = "pkg/allocator/plan"
)

var (
	product   = regexp.MustCompile(`^(apis|cmd|registry|pkg)/`)
	support   = regexp.MustCompile(`_test\.go$|^registry/sandbox/registrytest/|^pkg/(testutil|integration|e2e)/`)
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	core      = regexp.MustCompile(`^pkg/(allocator(/.*)?|poolindex|(storage/)?etcdtxn)$`)
)

// file is a Go file that is not generated.
type file struct {
	path  string
	src   []byte
	lines int
}

func (f file) dir() string { return path.Dir(f.path) }

// bars collects what is missed.
type bars struct{ missed int }

// row prints a measure, and whether it keeps to its bar.
func (b *bars) row(ok bool, format string, args ...any) {
	mark := "    "
	if !ok {
		mark = "MISS"
		b.missed++
	}
	fmt.Printf("%s  %s\n", mark, fmt.Sprintf(format, args...))
}

func main() {
	missed, err := measure()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if missed > 0 {
		fmt.Printf("%d bars are missed\n", missed)
		os.Exit(1)
	}
}

func measure() (missed int, err error) {
	products, supports, err := files()
	if err != nil {
		return 0, err
	}
	b := &bars{}
	n := total(products)
	b.row(n < maxProduct, "%d lines of product code in %d files, below %d", n, len(products), maxProduct)
	n = total(supports)
	b.row(n < maxSupport, "%d lines of tests and support in %d files, below %d", n, len(supports), maxSupport)
	slices.SortFunc(products, func(a, b file) int { return cmp.Compare(a.lines, b.lines) })
	median := products[len(products)/2].lines
	b.row(median <= maxMedian, "%d lines in the median product file, at most %d", median, maxMedian)
	for _, f := range products[max(0, len(products)-3):] {
		b.row(f.lines <= maxFile, "%d lines in %s, at most %d", f.lines, f.path, maxFile)
	}
	if err := measureTypes(b, products); err != nil {
		return 0, err
	}
	if err := measurePlan(b, products); err != nil {
		return 0, err
	}
	return b.missed, measureWalk(b)
}

// files returns the Go files that git knows, without generated ones.
func files() (products, supports []file, err error) {
	out, err := exec.Command("git", "ls-files", "-z", "*.go").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		src, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return nil, nil, err
		}
		f := file{name, src, bytes.Count(src, []byte("\n"))}
		switch {
		case generated.Match(src):
		case support.MatchString(name):
			supports = append(supports, f)
		case product.MatchString(name):
			products = append(products, f)
		}
	}
	if len(products) == 0 {
		return nil, nil, fmt.Errorf("there is no product code here")
	}
	return products, supports, nil
}

func total(files []file) int {
	lines := 0
	for _, f := range files {
		lines += f.lines
	}
	return lines
}

var (
	walkBegins = []byte("## The walk of one claim\n")
	goFile     = regexp.MustCompile("`([\\w./-]+\\.go)`")
	step       = regexp.MustCompile(`^\d+\. `)
)

// measureWalk counts the files that docs/design.md names in its walk of a claim.
func measureWalk(b *bars) error {
	doc, err := os.ReadFile("docs/design.md")
	if err != nil {
		return err
	}
	_, section, found := bytes.Cut(doc, walkBegins)
	if !found {
		return fmt.Errorf("docs/design.md has no %q", walkBegins)
	}
	section, _, _ = bytes.Cut(section, []byte("\n## "))
	var named []string
	for line := range strings.Lines(string(section)) {
		if !step.MatchString(line) {
			continue
		}
		for _, match := range goFile.FindAllStringSubmatch(line, -1) {
			if !slices.Contains(named, match[1]) {
				named = append(named, match[1])
			}
		}
	}
	b.row(len(named) > 0 && len(named) <= maxWalk, "%d files on the walk of a claim, at most %d: %s", len(named), maxWalk, strings.Join(named, ", "))
	return nil
}
