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
			s := scanner{db: db, env: append(os.Environ(), "GOWORK=off")}
			if err := s.scan(t.Context(), "it", args...); err != nil {
				t.Fatal(err)
			}
			var found []finding
			for _, f := range s.findings() {
				if f.module == module { // not the standard library of this Go
					found = append(found, f)
				}
			}
			answers := []answer{{ID: id, Module: module, Version: "v0.3.5", Why: "a test", Until: "2026-12-01"}}
			for _, f := range found {
				if f.id != id && f.level != required {
					answers = append(answers, answer{ID: f.id, Module: module, Version: f.version, Why: "another one", Until: "2026-12-01"})
				}
			}
			if err := judge(found, answers, today); err != nil {
				t.Errorf("with an answer: %v", err)
			}
			err := judge(found, answers[1:], today)
			if err == nil || !strings.Contains(err.Error(), id) || !strings.Contains(err.Error(), "called in it (golang.org/x/text/language") {
				t.Errorf("without one: %v", err)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	found := []finding{
		{id: "GO-1", module: "m", version: "v1.0.0", fixed: "v1.1.0", level: called, symbol: "m.F", in: []string{"a", "b"}, summary: "Crash"},
		{id: "GO-2", module: "m", version: "v1.0.0", level: imported, in: []string{"a"}},
		{id: "GO-3", module: "m", version: "v1.0.0", level: required, in: []string{"a"}},
	}
	one := answer{ID: "GO-1", Module: "m", Version: "v1.0.0", Why: "w", Until: "2026-11-26"}
	two := answer{ID: "GO-2", Module: "m", Version: "v1.0.0", Why: "w", Until: "2026-11-26"}
	for name, test := range map[string]struct {
		answers []answer
		now     time.Time
		want    []string
	}{
		"all answered":       {answers: []answer{one, two}, now: today},
		"called":             {answers: []answer{two}, now: today, want: []string{"GO-1 m@v1.0.0, fixed in v1.1.0, called in a b (m.F): Crash is neither"}},
		"imported":           {answers: []answer{one}, now: today, want: []string{"GO-2 m@v1.0.0, not fixed in any version, imported in a: "}},
		"of another module":  {answers: []answer{one, {ID: "GO-2", Module: "other", Version: "v1.0.0", Why: "w", Until: "2026-11-26"}}, now: today, want: []string{"GO-2 m@", "GO-2 in other@v1.0.0 is answered, and is not found"}},
		"of another version": {answers: []answer{one, {ID: "GO-2", Module: "m", Version: "v1.2.0", Why: "w", Until: "2026-11-26"}}, now: today, want: []string{"GO-2 m@", "GO-2 in m@v1.2.0 is answered, and is not found"}},
		"overdue":            {answers: []answer{one, two}, now: today.AddDate(0, 0, 1), want: []string{"GO-1 in m@v1.0.0 was answered until 2026-11-26", "GO-2 in m@v1.0.0 was"}},
		"not needed":         {answers: []answer{one, two, {ID: "GO-3", Module: "m", Version: "v1.0.0", Why: "w", Until: "2026-11-26"}}, now: today, want: []string{"GO-3 in m@v1.0.0 is answered, and is not found"}},
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
