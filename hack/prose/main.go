// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// prose writes what Go files say to people as text, for hack/verify-prose.sh: their comments,
// messages of logs and descriptions of flags. Each text is at the line on which it is in the
// Go file, in a file of the same name. Generated files, directives and code are left out.
//
// usage: prose FOLDER FILE...
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sandlot-io/sandlot/hack/messages"
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
	for _, message := range append(messages.Logs(file), messages.Flags(file)...) {
		// A message that begins a line of code may go on in the next ones; it is all put here.
		add(message.Pos, strings.ReplaceAll(message.Text, "\n", " "))
	}
	return strings.Join(lines, "\n"), nil
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
