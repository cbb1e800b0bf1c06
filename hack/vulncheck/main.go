// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command vulncheck has govulncheck look at the programs that are shipped and at the modules
// that others import. It fails where a vulnerability is neither fixed nor answered in
// answers.yaml.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/vuln/scan"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/hack/image/compile"
)

// The database of the Go project is a module as well, whose version says of when it is. With
// one that is pinned, a commit that passed the check still passes it later.
const (
	database    = "golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018"
	databaseSum = "h1:mfngRv0Yoh0VApsXKEN82CjD99kl7mtparN3bs3JnqI="
)

// libraries are the modules that others import. Of these it is known what they import, and not
// what is called, which takes minutes and matters little: both must be fixed or answered.
var libraries = []string{"apis", filepath.Join("pkg", "client")}

func main() {
	root := flag.String("root", "../..", "Folder of the main module.")
	db := flag.String("db", "", "URL of the database, such as https://vuln.go.dev (default the pinned one).")
	file := flag.String("answers", "answers.yaml", "File with the answers.")
	flag.Parse()
	if err := run(context.Background(), *root, *db, *file); err != nil {
		fmt.Fprintf(os.Stderr, "vulncheck: fix what is found, or answer it in %s:\n%v\n", *file, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, db, file string) error {
	answers, err := readAnswers(file)
	if err == nil && db == "" {
		db, err = pinnedDatabase(ctx)
	}
	if err != nil {
		return err
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "sandlot-vulncheck-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // it is in the temporary folder in any case
	programs, err := compilePrograms(ctx, root, work)
	if err != nil {
		return err
	}
	toolchain, err := compile.Toolchain(ctx, root)
	if err != nil {
		return err
	}
	env := append(os.Environ(), "GOWORK=off", "GOTOOLCHAIN="+toolchain)
	found := map[finding]string{}
	for _, program := range programs {
		err = errors.Join(err, look(ctx, found, env, db, "-mode=binary", filepath.Join(work, program)))
	}
	for _, library := range libraries {
		err = errors.Join(err, look(ctx, found, env, db, "-scan=package", "-C", filepath.Join(root, library), "./..."))
	}
	if err != nil {
		return err
	}
	return judge(found, answers, time.Now())
}

// compilePrograms compiles the programs of the images and those that people run themselves, as
// for a release, but with the symbols that tell what is in them.
func compilePrograms(ctx context.Context, root, work string) (names []string, err error) {
	folders, err := os.ReadDir(filepath.Join(root, "cmd"))
	if err != nil {
		return nil, err
	}
	var own []compile.Program
	for _, folder := range folders {
		own = append(own, compile.Own(folder.Name()))
	}
	o := compile.Options{Root: root, Version: "vulncheck", Platform: "linux/" + runtime.GOARCH, Out: work, Symbols: true}
	err = compile.Programs(ctx, o, own...)
	o.Module = compile.EtcdModule
	err = errors.Join(err, compile.Programs(ctx, o, compile.Etcd...))
	for _, program := range append(own, compile.Etcd...) {
		names = append(names, program.Name)
	}
	return names, err
}

// pinnedDatabase has the go command download the pinned database, where that is not done yet,
// and returns its URL.
func pinnedDatabase(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", database).Output()
	var module struct{ Dir, Sum, Error string }
	if err = errors.Join(err, json.Unmarshal(out, &module)); err != nil || module.Sum != databaseSum {
		return "", fmt.Errorf("downloading %s with the checksum %s: %s %s: %w", database, databaseSum, module.Sum, module.Error, err)
	}
	return "file://" + filepath.ToSlash(filepath.Join(module.Dir, "data", "osv")), nil
}

// finding is a known vulnerability, by its name in the Go vulnerability database, in a module.
type finding struct {
	ID      string `json:"id"`
	Module  string `json:"module"`
	Version string `json:"version"`
}

func (f finding) String() string { return fmt.Sprintf("%s in %s@%s", f.ID, f.Module, f.Version) }

// look has govulncheck look at a program or library, and adds what it finds, with what tells
// where. A package that is not there, of a module that is required, is nothing.
func look(ctx context.Context, found map[finding]string, env []string, db string, args ...string) error {
	var out bytes.Buffer
	cmd := scan.Command(ctx, append([]string{"-db", db, "-format", "json"}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, os.Stderr, env
	if err := errors.Join(cmd.Start(), cmd.Wait()); err != nil {
		return fmt.Errorf("looking at %s: %w", args, err)
	}
	for messages := json.NewDecoder(&out); ; {
		var m struct {
			Finding struct {
				OSV          string
				FixedVersion string `json:"fixed_version"`
				// Trace begins with what has the vulnerability.
				Trace []struct{ Module, Version, Package, Function string }
			}
		}
		if err := messages.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(m.Finding.Trace) == 0 || m.Finding.Trace[0].Package == "" {
			continue
		}
		at := m.Finding.Trace[0]
		f := finding{ID: m.Finding.OSV, Module: at.Module, Version: at.Version}
		if at.Function != "" || found[f] == "" { // what is called says more
			found[f] = fmt.Sprintf("fixed in %q, %s %s, %s", m.Finding.FixedVersion, at.Package, at.Function, args[len(args)-1])
		}
	}
}

// answer says why a vulnerability is none here.
type answer struct {
	finding
	// Why says why it does no harm here.
	Why string `json:"why"`
	// Until is the day, such as 2027-02-01, on which the answer has to be given again.
	Until string `json:"until"`
}

func readAnswers(file string) (answers []answer, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &answers)
	}
	for _, a := range answers {
		if _, wrong := time.Parse(time.DateOnly, a.Until); wrong != nil || a.ID == "" || a.Module == "" || a.Version == "" || a.Why == "" {
			err = errors.Join(err, fmt.Errorf("%s: %+v must have id, module, version, why, and until in the form 2027-02-01", file, a))
		}
	}
	return answers, err
}

// judge returns an error for each finding that has to be fixed or answered, and for each answer
// that is overdue or answers nothing.
func judge(found map[finding]string, answers []answer, now time.Time) error {
	var problems []error
	answered := map[finding]bool{}
	for _, a := range answers {
		answered[a.finding] = true
		if found[a.finding] == "" {
			problems = append(problems, fmt.Errorf("%s is answered, and is not found: take the answer out", a.finding))
		} else if now.Format(time.DateOnly) >= a.Until {
			problems = append(problems, fmt.Errorf("%s was answered until %s: look at it again", a.finding, a.Until))
		}
	}
	for f, where := range found {
		if !answered[f] {
			problems = append(problems, fmt.Errorf("%s is neither fixed nor answered: %s", f, where))
		}
	}
	return errors.Join(problems...)
}
