// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compile compiles the programs that are shipped. The same sources give the same
// bytes, on any machine and at any time.
package compile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Program is a main package.
type Program struct {
	// Name is that of the file, and Package what it is made of.
	Name, Package string
}

// Own is a program of the main module, by the name of its folder in cmd.
func Own(name string) Program { return Program{Name: name, Package: "./cmd/" + name} }

// EtcdModule is the folder of the module that pins etcd, and Etcd its programs.
var (
	EtcdModule = filepath.Join("hack", "etcd")
	Etcd       = []Program{
		{Name: "etcd", Package: "go.etcd.io/etcd/server/v3"},
		{Name: "etcdctl", Package: "go.etcd.io/etcd/etcdctl/v3"},
		{Name: "etcdutl", Package: "go.etcd.io/etcd/etcdutl/v3"},
	}
)

// Options say for what to compile.
type Options struct {
	// Root is the folder of the main module.
	Root string
	// Module is the folder of the module that the programs are compiled in, below Root. Empty
	// is the main module.
	Module string
	// Version is what the programs call themselves.
	Version string
	// Platform is of the form OS/ARCHITECTURE.
	Platform string
	// Out is the folder for the programs, which is made.
	Out string
	// Symbols leaves the names of functions in the programs. Those that are shipped have none.
	Symbols bool
}

// Programs compiles programs. Without cgo they are static; without paths and with the version
// given, they depend on the sources alone, for go.mod of the main module says by which Go they
// are compiled.
func Programs(ctx context.Context, o Options, programs ...Program) error {
	if err := o.programs(ctx, programs); err != nil {
		return fmt.Errorf("compiling for %s: %w", o.Platform, err)
	}
	return nil
}

func (o Options) programs(ctx context.Context, programs []Program) error {
	goos, goarch, ok := strings.Cut(o.Platform, "/")
	if !ok || goos == "" || goarch == "" {
		return fmt.Errorf("platform %q is not of the form OS/ARCHITECTURE", o.Platform)
	}
	toolchain, err := Toolchain(ctx, o.Root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return err
	}
	ldflags := "-buildid= -X github.com/sandlot-io/sandlot/pkg/version.version=" + o.Version
	if !o.Symbols {
		ldflags += " -s -w"
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", o.Out + string(filepath.Separator)}
	for _, one := range programs {
		args = append(args, one.Package)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(o.Root, o.Module)
	machine, err := ofMachine(ctx, o.Root)
	if err != nil {
		return err
	}
	// What the environment, and the file of go env -w, could say about the code that is made.
	cmd.Env = append(append(os.Environ(), machine...), "GOENV=off", "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off",
		"GOTOOLCHAIN="+toolchain, "GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build in %s: %w", cmd.Dir, err)
	}
	for _, one := range programs {
		if err := os.Rename(filepath.Join(o.Out, built(one.Package)), filepath.Join(o.Out, one.Name)); err != nil {
			return err
		}
	}
	return nil
}

// ofMachine is what the environment and the file of go env -w say of where modules and Go come
// from and are kept. What they are is in go.sum, so that it changes nothing in programs.
func ofMachine(ctx context.Context, root string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "-json", "GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOINSECURE",
		"GOVCS", "GOAUTH", "GOMODCACHE", "GOCACHE", "GOTMPDIR")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go env in %s: %w", root, err)
	}
	var values map[string]string
	if err := json.Unmarshal(out, &values); err != nil {
		return nil, fmt.Errorf("go env in %s: %w", root, err)
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		env = append(env, name+"="+values[name])
	}
	return env, nil
}

// built is how go build calls the program of a package: by the last part of its path that is
// no major version.
func built(pkg string) string {
	name := path.Base(pkg)
	if digits := strings.TrimPrefix(name, "v"); digits != name && strings.Trim(digits, "0123456789") == "" {
		return path.Base(path.Dir(pkg))
	}
	return name
}

// Toolchain is the Go that go.mod of the main module names, such as go1.26.11.
func Toolchain(ctx context.Context, root string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "edit", "-json")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go mod edit in %s: %w", root, err)
	}
	var file struct{ Toolchain string }
	if err := json.Unmarshal(out, &file); err != nil {
		return "", fmt.Errorf("go mod edit in %s: %w", root, err)
	}
	if file.Toolchain == "" {
		return "", errors.New("go.mod names no toolchain to compile with")
	}
	return file.Toolchain, nil
}
