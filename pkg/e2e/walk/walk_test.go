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
// executes no more of our code than is recorded in walk.json. A claim should not run through the
// code of features that it does not ask for. If the size falls, record it by
//
//	go test ./pkg/e2e/walk -update
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
	executed := executedByAll(t, folder)
	got := measure(t, executed)
	for _, file := range slices.Sorted(maps.Keys(executed)) {
		t.Logf("%s: %d lines", file, len(executed[file]))
	}
	t.Logf("%+v", got)
	if *update {
		record(t, got)
		return
	}
	want := recorded(t)
	if got.Files > want.Files || got.Functions > want.Functions || got.Lines > want.Lines {
		t.Errorf("a warm claim executes more of our code than is recorded (-recorded +got):\n%s", cmp.Diff(want, got))
	}
	// Work that the server does from time to time may be missing, so small differences are ignored.
	if 100*got.Lines < 97*want.Lines {
		t.Errorf("a warm claim executes less of our code: record that with -update (-recorded +got):\n%s", cmp.Diff(want, got))
	}
}

// block is a line of a coverage profile without its count.
var block = regexp.MustCompile(`^` + regexp.QuoteMeta(module) + `(\S+\.go):(\d+)\.\d+,(\d+)\.\d+ \d+ (\d+)$`)

// tests are the packages that only tests use.
var tests = regexp.MustCompile(`^pkg/(e2e|testutil|client)/`)

// executedByAll returns the lines of our code that all claims executed, by file.
func executedByAll(t *testing.T, folder string) map[string]map[int]bool {
	t.Helper()
	times := map[string]map[int]int{}
	for i := range claims {
		profile := filepath.Join(folder, "profile")
		run(t, "tool", "covdata", "textfmt", "-i="+folder+","+filepath.Join(folder, strconv.Itoa(i+1)), "-o="+profile)
		for file, lines := range executed(t, profile) {
			if times[file] == nil {
				times[file] = map[int]int{}
			}
			for line := range lines {
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

// executed returns the lines with a count in a profile, by file.
func executed(t *testing.T, profile string) map[string]map[int]bool {
	t.Helper()
	text, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]map[int]bool{}
	for line := range strings.Lines(string(text)) {
		match := block.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil || match[4] == "0" || tests.MatchString(match[1]) {
			continue
		}
		if lines[match[1]] == nil {
			lines[match[1]] = map[int]bool{}
		}
		for i := number(t, match[2]); i <= number(t, match[3]); i++ {
			lines[match[1]][i] = true
		}
	}
	return lines
}

// measure counts files, functions and lines.
func measure(t *testing.T, executed map[string]map[int]bool) size {
	t.Helper()
	root, err := program.Root()
	if err != nil {
		t.Fatal(err)
	}
	s := size{Files: len(executed)}
	for file, lines := range executed {
		s.Lines += len(lines)
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
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

const recordFile = "walk.json"

func recorded(t *testing.T) (s size) {
	t.Helper()
	data, err := os.ReadFile(recordFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func record(t *testing.T, s size) {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordFile, append(data, '\n'), 0o644); err != nil {
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
