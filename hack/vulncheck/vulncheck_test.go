// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// today is before the day that the answers of the tests are for.
var today = time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)

// TestVulnerableProgram: a program with a known vulnerability is found by the pinned database,
// in the program and in its source, and does not pass without an answer.
func TestVulnerableProgram(t *testing.T) {
	const id, module = "GO-2021-0113", "golang.org/x/text"
	db, err := pinnedDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join("testdata", "vulnerable")
	program := filepath.Join(t.TempDir(), "vulnerable")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir, build.Env = folder, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, args := range map[string][]string{
		"program": {"-mode=binary", program},
		"source":  {"-C", folder, "./..."},
	} {
		t.Run(name, func(t *testing.T) {
			found := map[finding]string{}
			if err := look(t.Context(), found, append(os.Environ(), "GOWORK=off"), db, args...); err != nil {
				t.Fatal(err)
			}
			where := found[finding{id, module, "v0.3.5"}]
			if !strings.Contains(where, "golang.org/x/text/language ") || strings.Contains(where, "language ,") {
				t.Errorf("%s is not called: %q", id, where)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	first, second := finding{"GO-1", "m", "v1.0.0"}, finding{"GO-2", "m", "v1.0.0"}
	found := map[finding]string{first: "m.F", second: "m"}
	of := func(f finding) answer { return answer{f, "w", "2026-11-26"} }
	one, two := of(first), of(second)
	for name, test := range map[string]struct {
		answers []answer
		now     time.Time
		want    []string
	}{
		"all answered":       {answers: []answer{one, two}, now: today},
		"one is not":         {answers: []answer{two}, now: today, want: []string{"GO-1 in m@v1.0.0 is neither fixed nor answered: m.F"}},
		"of another module":  {answers: []answer{one, of(finding{"GO-2", "other", "v1.0.0"})}, now: today, want: []string{"GO-2 in other@v1.0.0 is answered, and is not found", "GO-2 in m@"}},
		"of another version": {answers: []answer{one, of(finding{"GO-2", "m", "v1.2.0"})}, now: today, want: []string{"GO-2 in m@v1.2.0 is answered, and is not found", "GO-2 in m@"}},
		"overdue":            {answers: []answer{one, two}, now: today.AddDate(0, 0, 1), want: []string{"GO-1 in m@v1.0.0 was answered until 2026-11-26", "GO-2 in m@v1.0.0 was"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			if err := judge(found, test.answers, test.now); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], test.want[i]) {
					t.Errorf("got %q, want %q", got[i], test.want[i])
				}
			}
		})
	}
}

func TestAnswersAreWhole(t *testing.T) {
	if _, err := readAnswers("answers.yaml"); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"no reason":  `[{id: GO-1, module: m, version: v1, until: "2027-02-01"}]`,
		"no day":     `[{id: GO-1, module: m, version: v1, why: w}]`,
		"no version": `[{id: GO-1, module: m, why: w, until: "2027-02-01"}]`,
		"a word":     `[{id: GO-1, module: m, version: v1, why: w, until: later}]`,
		"more":       `[{id: GO-1, module: m, version: v1, why: w, until: "2027-02-01", for: ever}]`,
	} {
		file := filepath.Join(t.TempDir(), "answers.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readAnswers(file); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
