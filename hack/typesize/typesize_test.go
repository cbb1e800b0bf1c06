// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package typesize holds types to a size that a reader can keep in mind.
package typesize

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/sandlot-io/sandlot/"
	root   = "../.."
	// maxMethods and maxFields are how many a type may have, with those of the types of ours
	// that it embeds.
	maxMethods, maxFields = 15, 12
)

// size is how many methods and fields a type has. Fields are 0 for types without methods, such as those of
// the API, and for types whose name ends in Options or Config.
type size struct{ methods, fields int }

func (s size) isLarge() bool { return s.methods > maxMethods || s.fields > maxFields }

// exceptions are the types that are larger, and their sizes. Add none, and record it when one
// gets smaller.
var exceptions = map[string]size{
	"pkg/apiserver/limits.watchWriter":   {6, 18},
	"pkg/apiserver/agentruntime.Setup":   {23, 10},
	"pkg/apiserver/agentruntime.Worker":  {12, 13},
	"pkg/apiserver/agentruntime.work":    {18, 16},
	"pkg/backup/restore.Job":             {12, 14},
	"pkg/backup/restore.state":           {19, 5},
	"pkg/cli.claimOptions":               {22, 0},
	"pkg/runtimeserver/process.Process":  {17, 15},
	"registry/sandbox/sandbox.Strategy":  {17, 5},
	"registry/sandbox/sandboxclaim.REST": {19, 10},
}

// TestTypeSizes: no type is larger than the limits, except those of the list, which has their sizes.
func TestTypeSizes(t *testing.T) {
	types := typesOf(t)
	if len(types) == 0 {
		t.Fatal("no types were found")
	}
	for name := range exceptions {
		if types[name] == nil {
			t.Errorf("there is no type %s: remove it from the exceptions", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		got := sizeOf(types, name)
		want, listed := exceptions[name]
		switch {
		case listed && got == want && got.isLarge(), !listed && !got.isLarge():
		case !listed:
			t.Errorf("%s has %d methods and %d fields: split it into types of one idea each, or write methods that need no state as functions", name, got.methods, got.fields)
		case !got.isLarge():
			t.Errorf("%s is within the limits now: remove it from the exceptions", name)
		case got.methods > want.methods || got.fields > want.fields:
			t.Errorf("%s has grown to %d methods and %d fields, from %d and %d", name, got.methods, got.fields, want.methods, want.fields)
		default:
			t.Errorf("%s is smaller now: record {%d, %d} in the exceptions", name, got.methods, got.fields)
		}
	}
}

// TestSizeOf: a type counts the methods and fields of the types of ours that it embeds, a method once.
func TestSizeOf(t *testing.T) {
	types := map[string]*declaration{}
	for name, source := range map[string]string{
		"pkg/a/a.go": `package a
			import (q "github.com/sandlot-io/sandlot/pkg/b"; "sync")
			type Outer[T any] struct { sync.Mutex; *inner; q.Far; a, b int }
			func (o *Outer[T]) One() {}
			func (Outer[T]) Two() {}
			type inner struct { c int }
			func (*inner) One() {}
			func (*inner) Three() {}
			type plain interface { Four(); q.Far }`,
		"pkg/b/b.go": `package b
			type Far interface { Five(); Six() }
			type Data struct { a, b int }`,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		collect(types, path.Dir(name), file)
	}
	for name, want := range map[string]size{"pkg/a.Outer": {5, 4}, "pkg/a.inner": {2, 1}, "pkg/a.plain": {3, 0}, "pkg/b.Far": {2, 0}, "pkg/b.Data": {0, 0}} {
		if got := sizeOf(types, name); got != want {
			t.Errorf("%s has size %v, want %v", name, got, want)
		}
	}
}

// A declaration is a type, by what its source says.
type declaration struct {
	methods, fields, embeds []string
}

// sizeOf returns the size of a type with what it embeds.
func sizeOf(types map[string]*declaration, name string) size {
	methods, fields := map[string]bool{}, 0
	var add func(name string)
	add = func(name string) {
		d := types[name]
		if d == nil { // of another module
			fields++
			return
		}
		for _, method := range d.methods {
			methods[method] = true
		}
		fields += len(d.fields)
		for _, embedded := range d.embeds {
			add(embedded)
		}
	}
	add(name)
	if len(methods) == 0 || strings.HasSuffix(name, "Options") || strings.HasSuffix(name, "Config") {
		fields = 0
	}
	return size{len(methods), fields}
}

// typesOf returns the types of the product, without what is generated.
func typesOf(t *testing.T) map[string]*declaration {
	t.Helper()
	types := map[string]*declaration{}
	for _, dir := range []string{"apis", "cmd", "pkg", "registry"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			name, err = filepath.Rel(root, name)
			if err != nil || isForTests(filepath.ToSlash(name)) {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.SkipObjectResolution|parser.ParseComments)
			if err == nil && !ast.IsGenerated(file) {
				collect(types, filepath.ToSlash(filepath.Dir(name)), file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return types
}

// isForTests reports whether a file is used by tests only.
func isForTests(name string) bool {
	return slices.ContainsFunc([]string{"pkg/e2e/", "pkg/integration/", "pkg/testutil/", "registry/sandbox/registrytest/"},
		func(folder string) bool { return strings.HasPrefix(name, folder) })
}

// collect adds the types and methods of a file of a package.
func collect(types map[string]*declaration, pkg string, file *ast.File) {
	of := func(name string) *declaration {
		name = pkg + "." + name
		if types[name] == nil {
			types[name] = &declaration{}
		}
		return types[name]
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv != nil {
				d := of(typeName(pkg, file, decl.Recv.List[0].Type)[len(pkg)+1:])
				d.methods = append(d.methods, decl.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					addMembers(of(spec.Name.Name), pkg, file, spec.Type)
				}
			}
		}
	}
}

// addMembers adds the fields of a struct or the methods of an interface.
func addMembers(d *declaration, pkg string, file *ast.File, expr ast.Expr) {
	var list *ast.FieldList
	add := &d.fields
	switch expr := expr.(type) {
	case *ast.StructType:
		list = expr.Fields
	case *ast.InterfaceType:
		list, add = expr.Methods, &d.methods
	default:
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			*add = append(*add, name.Name)
		}
		if len(field.Names) == 0 {
			d.embeds = append(d.embeds, typeName(pkg, file, field.Type))
		}
	}
}

// typeName returns the package and the name of a type that a file names.
func typeName(pkg string, file *ast.File, expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.Ident:
		return pkg + "." + expr.Name
	case *ast.StarExpr:
		return typeName(pkg, file, expr.X)
	case *ast.IndexExpr:
		return typeName(pkg, file, expr.X)
	case *ast.IndexListExpr:
		return typeName(pkg, file, expr.X)
	case *ast.SelectorExpr:
		of, _ := expr.X.(*ast.Ident)
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil || of == nil {
				continue
			}
			if name := path.Base(imported); name == of.Name || spec.Name != nil && spec.Name.Name == of.Name {
				return strings.TrimPrefix(imported, module) + "." + expr.Sel.Name
			}
		}
	}
	return ""
}
