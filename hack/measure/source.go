// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// size is how large a type is.
type size struct{ methods, fields int }

// measureTypes prints the largest types of each package. Those of the core have bars.
func measureTypes(b *bars, products []file) error {
	types := map[string]map[string]size{} // by package and name
	for _, f := range products {
		parsed, err := parser.ParseFile(token.NewFileSet(), f.path, f.src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if types[f.dir()] == nil {
			types[f.dir()] = map[string]size{}
		}
		countTypes(parsed, types[f.dir()])
	}
	for _, dir := range slices.Sorted(maps.Keys(types)) {
		ofCore := core.MatchString(dir)
		for _, name := range largest(types[dir], ofCore) {
			s := types[dir][name]
			if ofCore {
				b.row(s.methods <= maxMethods && s.fields <= maxFields, "%d methods, %d fields: %s.%s, of the core: at most %d and %d",
					s.methods, s.fields, dir, name, maxMethods, maxFields)
			} else if s.methods > maxMethods || s.fields > maxFields {
				b.row(true, "%d methods, %d fields: %s.%s", s.methods, s.fields, dir, name)
			}
		}
	}
	return nil
}

// countTypes adds the methods and fields of a file's types.
func countTypes(parsed *ast.File, types map[string]size) {
	for _, decl := range parsed.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if name := receiver(decl); name != "" {
				s := types[name]
				s.methods++
				types[name] = s
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				spec, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				s := types[spec.Name.Name]
				switch t := spec.Type.(type) {
				case *ast.StructType:
					s.fields = t.Fields.NumFields()
				case *ast.InterfaceType:
					s.methods = t.Methods.NumFields()
				}
				types[spec.Name.Name] = s
			}
		}
	}
}

// receiver is the name of the type that a function is a method of.
func receiver(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return ""
	}
	expr := decl.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// largest returns the types with the most methods and the most fields, and, with all,
// every type above a bar as well.
func largest(types map[string]size, all bool) []string {
	var methods, fields string
	var names []string
	for _, name := range slices.Sorted(maps.Keys(types)) {
		s := types[name]
		if methods == "" || s.methods > types[methods].methods {
			methods = name
		}
		if fields == "" || s.fields > types[fields].fields {
			fields = name
		}
		if all && (s.methods > maxMethods || s.fields > maxFields) {
			names = append(names, name)
		}
	}
	for _, name := range []string{methods, fields} {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

const module = "github.com/sandlot-io/sandlot/"

// planImports are what the pure planner may import of this module and of Kubernetes.
var planImports = regexp.MustCompile(`^(` + module + `(apis/sandbox/v1alpha1|pkg/claims|pkg/podtemplate|pkg/inplace)|k8s\.io/(apimachinery|utils)/.*)$`)

// impure are packages that are allowed by that, or are of the standard library, and that
// a function of values has no use for.
var impure = regexp.MustCompile(`^(context|sync(/.*)?|net(/.*)?|os(/.*)?|io(/.*)?|k8s\.io/utils/clock(/.*)?|k8s\.io/apimachinery/pkg/util/(wait|clock)|k8s\.io/apimachinery/pkg/watch)$`)

// measurePlan looks at what the planner imports.
func measurePlan(b *bars, products []file) error {
	found := false
	for _, f := range products {
		if f.dir() != planPackage {
			continue
		}
		found = true
		parsed, err := parser.ParseFile(token.NewFileSet(), f.path, f.src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		var bad []string
		for _, spec := range parsed.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", f.path, err)
			}
			first, _, _ := strings.Cut(name, "/")
			standard := !strings.Contains(first, ".")
			if impure.MatchString(name) || !standard && !planImports.MatchString(name) {
				bad = append(bad, name)
			}
		}
		b.row(len(bad) == 0, "%d imports of %s; not pure: %v", len(parsed.Imports), f.path, bad)
	}
	b.row(found, "the planner is a package of its own, %s", planPackage)
	return nil
}
