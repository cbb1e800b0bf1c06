// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// prose writes what Go files say to people as text, for hack/verify-prose.sh: their comments, and
// the messages among their strings, which are those of some words. Each text is at the line on
// which it is in the Go file, in a file of the same name. Generated files, directives, code in
// comments, and strings of tests are left out.
//
// usage: prose FOLDER FILE...
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: prose FOLDER FILE...")
		os.Exit(2)
	}
	for _, name := range os.Args[2:] {
		if err := write(os.Args[1], name); err != nil {
			fmt.Fprintln(os.Stderr, "prose:", err)
			os.Exit(1)
		}
	}
}

// write writes the text of a file into a folder, unless it has none.
func write(folder, name string) error {
	source, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text, err := prose(name, source)
	if err != nil || strings.TrimSpace(text) == "" {
		return err
	}
	out := filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644)
}

// prose returns the text of a file, at the same lines.
func prose(name string, source []byte) (string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	if ast.IsGenerated(file) {
		return "", nil
	}
	lines := make([]string, strings.Count(string(source), "\n")+1)
	add := func(pos token.Pos, text string) {
		first := set.Position(pos).Line - 1
		for i, line := range strings.Split(text, "\n") {
			lines[first+i] = strings.TrimSpace(lines[first+i] + " " + line)
		}
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			add(comment.Pos(), said(comment.Text))
		}
	}
	if strings.HasSuffix(name, "_test.go") {
		return strings.Join(lines, "\n"), nil
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, unquoteErr := strconv.Unquote(literal.Value)
			if err = errors.Join(err, unquoteErr); len(strings.Fields(text)) > 1 {
				// All lines of a message are put where it begins.
				add(literal.Pos(), strings.ReplaceAll(text, "\n", " "))
			}
		}
		return true
	})
	return strings.Join(lines, "\n"), err
}

// silent are comments for programs, the license, and code in comments.
var silent = regexp.MustCompile(`^//([a-z0-9]+:|nolint| \+| Copyright The | SPDX-|\t)`)

// said returns the text of a comment, without what marks it as one.
func said(comment string) string {
	if block, ok := strings.CutPrefix(comment, "/*"); ok {
		return strings.TrimSuffix(block, "*/")
	}
	if silent.MatchString(comment) {
		return ""
	}
	return strings.TrimPrefix(comment, "//")
}
