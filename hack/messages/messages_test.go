// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readers are the functions of the standard library that find something in a text.
var readers = map[string][]string{
	"strings": {"Contains", "ContainsAny", "Count", "Cut", "CutPrefix", "CutSuffix", "EqualFold", "Fields", "HasPrefix", "HasSuffix", "Index", "LastIndex", "Split", "SplitN", "SplitSeq"},
	"fmt":     {"Sscan", "Sscanf"},
}

// foreign are the functions that read messages of other programs, which have no other form.
var foreign = map[string]string{
	"pkg/runtime/process.go: readResult":                         "envd says by words alone that a program does not exist",
	"pkg/store/etcdtxn/errors.go: largerThanMessages":            "gRPC has one code for all limits",
	"pkg/controllers/sandboxset/replenish/holders.go: historyOf": "kube-apiserver says by words alone that a quota is exceeded",
}

// TestNoMessageIsRead: what has to be decided by, is in a field, a reason or an error value. The
// text of a message, ours or that of an error, is for people.
func TestNoMessageIsRead(t *testing.T) {
	found := map[string]bool{}
	eachFile(t, func(name string, _ *token.FileSet, file *ast.File) {
		for _, decl := range file.Decls {
			if function, ok := decl.(*ast.FuncDecl); ok && readsMessage(function) {
				found[fmt.Sprintf("%s: %s", name, function.Name.Name)] = true
			}
		}
	})
	for where := range found {
		if foreign[where] == "" {
			t.Errorf("%s reads the text of a message", where)
		}
	}
	for where := range foreign {
		if !found[where] {
			t.Errorf("%s reads no message any more", where)
		}
	}
}

// eachFile calls a function for each file of what is shipped, without tests.
func eachFile(t *testing.T, do func(name string, set *token.FileSet, file *ast.File)) {
	t.Helper()
	root := filepath.Join("..", "..")
	for _, dir := range []string{"apis", "cmd", "pkg", "registry"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil || strings.HasPrefix(name, "pkg/testutil/") || strings.HasPrefix(name, "pkg/e2e/") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			do(filepath.ToSlash(name), set, file)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// readsMessage reports whether a function looks for something in a message.
func readsMessage(function *ast.FuncDecl) (reads bool) {
	ast.Inspect(function, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		called, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, _ := called.X.(*ast.Ident)
		isReader := of != nil && slices.Contains(readers[of.Name], called.Sel.Name) || strings.HasPrefix(called.Sel.Name, "Match") || strings.HasPrefix(called.Sel.Name, "Find")
		reads = reads || isReader && slices.ContainsFunc(call.Args, isMessage)
		return true
	})
	return reads
}

// isMessage reports whether an expression is the text of a message or of an error.
func isMessage(expr ast.Expr) bool {
	if call, ok := expr.(*ast.CallExpr); ok {
		expr = call.Fun
		if called, ok := expr.(*ast.SelectorExpr); ok && called.Sel.Name == "Error" && len(call.Args) == 0 {
			return true
		}
	}
	selected, ok := expr.(*ast.SelectorExpr)
	return ok && selected.Sel.Name == "Message"
}
