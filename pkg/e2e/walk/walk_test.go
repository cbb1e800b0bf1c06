// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package walk

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

const (
	module = "github.com/sandlot-io/sandlot/"
	// claims is how many claims are created. What one of them executes and another does not, such as
	// periodic work of the server, is not counted.
	claims = 12
)

var update = flag.Bool("update", false, "write the recorded size")

// size is how much of our code something executes.
type size struct {
	Files     int `json:"files"`
	Functions int `json:"functions"`
	Lines     int `json:"lines"`
}

// TestWarmClaimWalk checks that the creation of a claim that asks for nothing but one warm sandbox
// executes no more of our code than is recorded in walk.json, and costs no more than is recorded in
// cost.json. A claim should not run through the code of features that it does not ask for, and no
// change may make all claims dearer unnoticed. If a figure falls, or has to rise, record it by
//
//	go test ./pkg/e2e/walk -update
//
// and say in the commit why it rose.
func TestWarmClaimWalk(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	run(t, "build", "-trimpath", "-cover", "-covermode=atomic", "-coverpkg=./pkg/...,./registry/...,./apis/...",
		"-o", filepath.Join(folder, "claims"), "./pkg/e2e/walk/claims")
	cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "claims"), folder, strconv.Itoa(claims))
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("claims: %v\n%s", err, out)
	}
	profiles := readProfiles(t, folder)
	t.Run("walk", func(t *testing.T) { testWalk(t, executedByAll(profiles)) })
	t.Run("cost", func(t *testing.T) { testCost(t, folder, profiles) })
}

// testWalk compares what all claims executed with the record.
func testWalk(t *testing.T, executed map[string]map[int]bool) {
	got := measure(t, executed)
	for _, file := range slices.Sorted(maps.Keys(executed)) {
		t.Logf("%s: %d lines", file, len(executed[file]))
	}
	t.Logf("%+v", got)
	if *update {
		write(t, walkRecord, got)
		return
	}
	var want size
	read(t, walkRecord, &want)
	if isMore(got.Files, want.Files) || isMore(got.Functions, want.Functions) || isMore(got.Lines, want.Lines) {
		t.Errorf("a warm claim executes more of our code than is recorded (-recorded +got):\n%s", cmp.Diff(want, got))
	}
	// Work that the server does from time to time may be missing, so small differences are ignored.
	if 100*got.Lines < 97*want.Lines {
		t.Errorf("a warm claim executes less of our code: record that with -update (-recorded +got):\n%s", cmp.Diff(want, got))
	}
}

// isMore reports whether a count is more than a hundredth above what is recorded. Whether an event arrives before or after
// the response of a claim changes a few lines.
func isMore(got, want int) bool { return 100*got > 101*want }

// block is a line of a coverage profile without its count.
var block = regexp.MustCompile(`^` + regexp.QuoteMeta(module) + `(\S+\.go):(\d+)\.\d+,(\d+)\.\d+ \d+ (\d+)$`)

// notOurs are the packages that only tests use, and the code that encodes and decodes protobuf: it is generated,
// and takes the part of a library.
var notOurs = regexp.MustCompile(`^pkg/(e2e|testutil|client)/|/generated\.pb\.go$`)

// profile is how often blocks of our code were executed, by file and the lines of each block.
type profile map[string]map[lines]int

// lines are the first and the last line of a block.
type lines struct{ first, last int }

// readProfiles returns the profile of each claim.
func readProfiles(t *testing.T, folder string) (profiles [claims]profile) {
	t.Helper()
	for i := range claims {
		file := filepath.Join(folder, "profile")
		run(t, "tool", "covdata", "textfmt", "-i="+folder+","+filepath.Join(folder, strconv.Itoa(i+1)), "-o="+file)
		profiles[i] = readProfile(t, file)
	}
	return profiles
}

func readProfile(t *testing.T, file string) profile {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := profile{}
	for line := range strings.Lines(string(text)) {
		match := block.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil || match[4] == "0" || notOurs.MatchString(match[1]) {
			continue
		}
		if p[match[1]] == nil {
			p[match[1]] = map[lines]int{}
		}
		p[match[1]][lines{number(t, match[2]), number(t, match[3])}] += number(t, match[4])
	}
	return p
}

// executedByAll returns the lines of our code that all claims executed, by file.
func executedByAll(profiles [claims]profile) map[string]map[int]bool {
	times := map[string]map[int]int{}
	for _, p := range profiles {
		for file, blocks := range p {
			if times[file] == nil {
				times[file] = map[int]int{}
			}
			executed := map[int]bool{}
			for block := range blocks {
				for line := block.first; line <= block.last; line++ {
					executed[line] = true
				}
			}
			for line := range executed {
				times[file][line]++
			}
		}
	}
	all := map[string]map[int]bool{}
	for file, lines := range times {
		for line, n := range lines {
			if n < claims {
				continue
			}
			if all[file] == nil {
				all[file] = map[int]bool{}
			}
			all[file][line] = true
		}
	}
	return all
}

// measure counts files, functions and lines.
func measure(t *testing.T, executed map[string]map[int]bool) size {
	t.Helper()
	s := size{Files: len(executed)}
	for file, lines := range executed {
		s.Lines += len(lines)
		set, functions := functionsOf(t, file)
		for _, f := range functions {
			first, last := set.Position(f.Pos()).Line, set.Position(f.End()).Line
			for line := range lines {
				if first <= line && line <= last {
					s.Functions++
					break
				}
			}
		}
	}
	return s
}

// functionsOf returns the functions and methods of a file of ours.
func functionsOf(t *testing.T, file string) (*token.FileSet, []*ast.FuncDecl) {
	t.Helper()
	root, err := program.Root()
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, filepath.Join(root, file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var functions []*ast.FuncDecl
	for _, decl := range parsed.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			functions = append(functions, f)
		}
	}
	return set, functions
}

// walkRecord is the file with the recorded size.
const walkRecord = "walk.json"

// read reads a record.
func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// write writes a record.
func write(t *testing.T, file string, record any) {
	t.Helper()
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run runs the go command in the root of the repository.
func run(t *testing.T, args ...string) {
	t.Helper()
	root, err := program.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
}

func number(t *testing.T, digits string) int {
	t.Helper()
	n, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
