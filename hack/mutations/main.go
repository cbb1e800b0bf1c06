// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mutations changes the code in places where tests must notice, one change at a
// time, and fails if the tests that are named beside a change pass with it. It is run in
// the root of the repository, and changes nothing there: go build and go test are given
// the changed file as an overlay.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// list has the mutations.
//
//go:embed mutations.yaml
var list []byte

// mutation is a change of the code and the tests that fail with it.
type mutation struct {
	Name, File, Before, After string
	Tests                     []string
	Run                       string
}

func mutations() (all []mutation, err error) {
	err = yaml.UnmarshalStrict(list, &all)
	return all, err
}

func main() {
	match := flag.String("run", "", "Try only mutations whose name matches this regular expression.")
	flag.Parse()
	wanted, err := regexp.Compile(*match)
	if err != nil {
		fail(err)
	}
	all, err := mutations()
	if err != nil {
		fail(err)
	}
	dir, err := os.MkdirTemp("", "mutations-")
	if err != nil {
		fail(err)
	}
	r := &runner{dir: dir, passes: map[string]error{}}
	bad := 0
	for _, m := range all {
		if !wanted.MatchString(m.Name) {
			continue
		}
		begin := time.Now()
		verdict := "killed"
		if err := r.try(m); err != nil {
			bad++
			verdict = err.Error()
		}
		fmt.Printf("%-60s %5.1fs  %s\n", m.Name, time.Since(begin).Seconds(), verdict)
	}
	_ = os.RemoveAll(dir)
	if bad > 0 {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// runner tries mutations.
type runner struct {
	dir string
	// passes has, by the arguments of go test, whether the tests pass without a mutation.
	passes map[string]error
}

var errSurvived = errors.New("SURVIVED")

// try returns nil if the tests notice the mutation.
func (r *runner) try(m mutation) error {
	if err := r.passUnchanged(m); err != nil {
		return err
	}
	overlay, err := r.overlay(m)
	if err != nil {
		return err
	}
	if out, err := run("build", "-overlay", overlay, "./"+filepath.Dir(m.File)); err != nil {
		return fmt.Errorf("BROKEN: it does not compile: %s", firstLines(out))
	}
	out, err := run(append([]string{"test", "-overlay", overlay}, m.testArgs()...)...)
	switch {
	case err == nil:
		return errSurvived
	case didNotRun(out):
		return fmt.Errorf("BROKEN: the tests do not run: %s", firstLines(out))
	}
	return nil
}

// passUnchanged returns an error if the tests fail without the mutation, or are none.
func (r *runner) passUnchanged(m mutation) error {
	args := m.testArgs()
	key := strings.Join(args, " ")
	if err, known := r.passes[key]; known {
		return err
	}
	out, err := run(append([]string{"test"}, args...)...)
	switch {
	case err != nil:
		err = fmt.Errorf("BROKEN: the tests fail without it: %s", firstLines(out))
	case bytes.Contains(out, []byte("[no tests to run]")), bytes.Contains(out, []byte("[no test files]")):
		err = fmt.Errorf("BROKEN: -run %s fits no test of %v", m.Run, m.Tests)
	}
	r.passes[key] = err
	return err
}

func (m mutation) testArgs() []string {
	return append([]string{"-timeout", "5m", "-run", m.Run}, m.Tests...)
}

// overlay writes the changed file, and returns the name of the overlay that has it.
func (r *runner) overlay(m mutation) (string, error) {
	overlay, err := program.Change{File: m.File, Before: m.Before, After: m.After}.Overlay(".", r.dir)
	if err != nil {
		return "", fmt.Errorf("BROKEN: %w", err)
	}
	return overlay, nil
}

func run(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	return exec.CommandContext(ctx, "go", args...).CombinedOutput()
}

// didNotRun reports whether go test failed before a test could.
func didNotRun(out []byte) bool {
	return bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]"))
}

func firstLines(out []byte) string {
	lines := strings.SplitN(strings.TrimSpace(string(out)), "\n", 6)
	return strings.Join(lines[:min(len(lines), 5)], "\n\t")
}
