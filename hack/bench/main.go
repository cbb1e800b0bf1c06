// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures how much more a claim costs than the create of a plain
// object: through the same server, by the same clients, in the same minutes. It
// runs bin/sandlot as a process of its own, over TLS and with fsync on, and prints
// a line of JSON a case. docs/performance.md explains cases and fields.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// settings are the command line.
type settings struct {
	cases       string
	rounds      int
	count       int
	connections int
	pool        int
	dataDir     string
	program     string
	profiles    string
	check       bool
	cluster     bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	served, err := runStand(ctx, os.Args[1:])
	missed := false
	if !served {
		missed, err = run(ctx, parseFlags())
	}
	stop()
	switch {
	case err != nil:
		logf("bench: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	case missed:
		os.Exit(2)
	}
}

func parseFlags() *settings {
	o := &settings{}
	flag.StringVar(&o.cases, "cases", "*", "Cases to run: names or patterns, separated by commas; * stands for a part between slashes, or alone for all. Cases: "+
		strings.Join(caseNames(), " ")+", and with -cluster "+strings.Join(clusterCaseNames(), " "))
	flag.IntVar(&o.rounds, "rounds", 6, "How often claims and plain creates take turns in each case")
	flag.IntVar(&o.count, "count", 2000, "Claims a round with 64 clients. Other cases make a fixed part of it")
	flag.IntVar(&o.connections, "connections", 4, "HTTP/2 connections that 64 clients share")
	flag.IntVar(&o.pool, "pool", 100000, "Size of the large pool of the case pool/100k")
	flag.StringVar(&o.dataDir, "data-dir", "", "Folder for data, on the disk to measure (default a new one in _output, removed at the end)")
	flag.StringVar(&o.program, "program", filepath.Join("bin", "sandlot"), "The program to measure")
	flag.StringVar(&o.profiles, "profiles", "", "Folder to keep CPU profiles of the server in. They slow the last round of each case down")
	flag.BoolVar(&o.check, "check", false, "Fail if a goal is missed")
	flag.BoolVar(&o.cluster, "cluster", false, "Measure through the aggregator of a real control plane instead; it needs the programs of make controlplane")
	flag.Parse()
	return o
}

func (o *settings) validate() error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	for name, value := range map[string]int{
		"rounds": o.rounds, "count": o.count, "connections": o.connections, "pool": o.pool,
	} {
		if value < 1 {
			return fmt.Errorf("-%s must be at least 1", name)
		}
	}
	for pattern := range strings.SplitSeq(o.cases, ",") {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("-cases: pattern %q: %w", pattern, err)
		}
	}
	known := caseNames()
	if o.cluster {
		known = clusterCaseNames()
	}
	if slices.ContainsFunc(known, o.wants) {
		return nil
	}
	return fmt.Errorf("-cases: none of %s matches %q", strings.Join(known, " "), o.cases)
}

// wants reports whether a case was asked for.
func (o *settings) wants(name string) bool {
	for pattern := range strings.SplitSeq(o.cases, ",") {
		if matched, err := path.Match(pattern, name); pattern == "*" || matched && err == nil {
			return true
		}
	}
	return false
}

// run returns true if goals were missed and that matters.
func run(ctx context.Context, o *settings) (missed bool, err error) {
	if err := o.validate(); err != nil {
		return false, err
	}
	if err := quietLogs(); err != nil {
		return false, err
	}
	dir, remove, err := dataDir(o.dataDir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, remove()) }()

	b := &bench{settings: o, dir: dir, out: os.Stdout}
	if err := b.run(ctx); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		return false, err
	}
	return b.missed && o.check, nil
}

// dataDir makes a folder for the data of one run. It is below the working folder,
// because /tmp may be in memory, where an fsync costs nothing.
func dataDir(parent string) (dir string, remove func() error, err error) {
	if parent == "" {
		parent = "_output"
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", nil, fmt.Errorf("data folder: %w", err)
	}
	if dir, err = os.MkdirTemp(parent, "bench-"); err != nil {
		return "", nil, fmt.Errorf("data folder: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}
