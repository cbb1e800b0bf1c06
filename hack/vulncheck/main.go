// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command vulncheck looks for known vulnerabilities in the programs that are shipped and in the
// modules that others import, as govulncheck does. It fails where one is neither fixed nor
// answered in answers.yaml.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sandlot-io/sandlot/hack/image/compile"
)

// libraries are the modules that others import. Of these it is known what they import, and not
// what is called, which takes minutes and matters little: both must be fixed or answered.
var libraries = []string{"apis", filepath.Join("pkg", "client")}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "vulncheck: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("vulncheck", flag.ContinueOnError)
	root := fs.String("root", "../..", "Folder of the main module.")
	db := fs.String("db", "", "URL of the database, such as https://vuln.go.dev (default the pinned one, of "+databaseDate()+").")
	file := fs.String("answers", "answers.yaml", "File with the answers.")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", fs.Arg(0))
	}
	answers, err := readAnswers(*file)
	if err != nil {
		return err
	}
	if *db == "" {
		if *db, err = pinnedDatabase(ctx); err != nil {
			return err
		}
	}
	where, err := filepath.Abs(*root)
	if err != nil {
		return fmt.Errorf("-root: %w", err)
	}
	found, err := scanAll(ctx, where, *db)
	if err != nil {
		return err
	}
	problems := judge(found, answers, time.Now())
	for _, one := range found {
		if _, err := fmt.Fprintln(stdout, one); err != nil {
			return err
		}
	}
	if problems != nil {
		return fmt.Errorf("fix what is found, or answer it in %s:\n%w", *file, problems)
	}
	_, err = fmt.Fprintf(stdout, "nothing that is neither fixed nor answered, by %s\n", *db)
	return err
}

// scanAll looks at everything that is shipped.
func scanAll(ctx context.Context, root, db string) ([]finding, error) {
	work, err := os.MkdirTemp("", "sandlot-vulncheck-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for what is built: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // it is in the temporary folder in any case
	toolchain, err := compile.Toolchain(ctx, root)
	if err != nil {
		return nil, err
	}
	s := scanner{db: db, env: append(os.Environ(), "GOWORK=off", "GOTOOLCHAIN="+toolchain)}
	if err := s.programs(ctx, root, work); err != nil {
		return nil, err
	}
	for _, library := range libraries {
		if err := s.scan(ctx, library, "-scan=package", "-C", filepath.Join(root, library), "./..."); err != nil {
			return nil, err
		}
	}
	return s.findings(), nil
}

// programs looks at the programs of the images and those that people run themselves. They are
// compiled as for a release, but keep the symbols that tell what is in them.
func (s *scanner) programs(ctx context.Context, root, work string) error {
	folders, err := os.ReadDir(filepath.Join(root, "cmd"))
	if err != nil {
		return err
	}
	var own []compile.Program
	for _, folder := range folders {
		own = append(own, compile.Own(folder.Name()))
	}
	o := compile.Options{Root: root, Version: "vulncheck", Platform: "linux/" + runtime.GOARCH, Out: work, Symbols: true}
	if err := compile.Programs(ctx, o, own...); err != nil {
		return err
	}
	o.Module = compile.EtcdModule
	if err := compile.Programs(ctx, o, compile.Etcd...); err != nil {
		return err
	}
	for _, program := range append(own, compile.Etcd...) {
		if err := s.scan(ctx, program.Name, "-mode=binary", filepath.Join(work, program.Name)); err != nil {
			return err
		}
	}
	return nil
}
