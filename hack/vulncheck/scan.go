// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/vuln/scan"
)

// level is how near a vulnerability is.
type level int

const (
	// required is of a package that is not there, of a module that is.
	required level = iota
	// imported is of a package that is there, and of functions that are not.
	imported
	// called is of functions that are there.
	called
)

func (l level) String() string { return [...]string{"required", "imported", "called"}[l] }

// finding is a known vulnerability in a module.
type finding struct {
	id, module, version string
	// fixed is the version without it; empty is none.
	fixed   string
	summary string
	level   level
	// symbol is one of those that are called.
	symbol string
	// in are the programs and libraries that have it.
	in []string
}

func (f finding) String() string {
	fixed := "not fixed in any version"
	if f.fixed != "" {
		fixed = "fixed in " + f.fixed
	}
	symbol := ""
	if f.symbol != "" {
		symbol = " (" + f.symbol + ")"
	}
	return fmt.Sprintf("%s %s@%s, %s, %s in %s%s: %s", f.id, f.module, f.version, fixed, f.level, strings.Join(f.in, " "), symbol, f.summary)
}

// scanner gathers the findings of several scans.
type scanner struct {
	// db is the URL of the database, and env the environment of the go command.
	db    string
	env   []string
	found []finding
}

// message is one of those that govulncheck writes as JSON.
type message struct {
	OSV *struct {
		ID, Summary string
	}
	Finding *struct {
		OSV          string
		FixedVersion string `json:"fixed_version"`
		// Trace begins with what has the vulnerability.
		Trace []struct {
			Module, Version, Package, Function, Receiver string
		}
	}
}

// scan has govulncheck look at a program or library.
func (s *scanner) scan(ctx context.Context, target string, args ...string) error {
	cmd := scan.Command(ctx, append([]string{"-db", s.db, "-format", "json"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, os.Stderr, s.env
	err := cmd.Start()
	if err == nil {
		err = cmd.Wait()
	}
	if err == nil {
		err = s.read(target, &out)
	}
	if err != nil {
		return fmt.Errorf("looking at %s: %w", target, err)
	}
	return nil
}

// read adds the findings of an output of govulncheck, the nearest of each.
func (s *scanner) read(target string, out io.Reader) error {
	summaries := map[string]string{}
	messages := json.NewDecoder(out)
	for {
		var m message
		if err := messages.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m.OSV != nil {
			summaries[m.OSV.ID] = m.OSV.Summary
		}
		if m.Finding == nil || len(m.Finding.Trace) == 0 {
			continue
		}
		at := m.Finding.Trace[0]
		f := finding{id: m.Finding.OSV, module: at.Module, version: at.Version, fixed: m.Finding.FixedVersion, summary: summaries[m.Finding.OSV]}
		switch {
		case at.Function != "":
			f.level, f.symbol = called, at.Package+"."+at.Function
			if at.Receiver != "" {
				f.symbol = at.Package + "." + at.Receiver + "." + at.Function
			}
		case at.Package != "":
			f.level = imported
		}
		s.add(target, f)
	}
}

func (s *scanner) add(target string, f finding) {
	i := slices.IndexFunc(s.found, func(o finding) bool { return o.id == f.id && o.module == f.module && o.version == f.version })
	if i < 0 {
		i, s.found = len(s.found), append(s.found, f)
	}
	known := &s.found[i]
	if f.level > known.level {
		known.level, known.symbol = f.level, f.symbol
	}
	if !slices.Contains(known.in, target) {
		known.in = append(known.in, target)
	}
}

// findings are those of all scans, the nearest first.
func (s *scanner) findings() []finding {
	slices.SortStableFunc(s.found, func(a, b finding) int {
		if a.level != b.level {
			return int(b.level - a.level)
		}
		return strings.Compare(a.id+a.module, b.id+b.module)
	})
	return s.found
}
