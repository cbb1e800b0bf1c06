// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures how much more a claim costs than the create of a plain
// object: through the same server, by the same clients, in the same minutes. It
// runs bin/sandlot as a process of its own, over TLS and with fsync on, and prints
// a line of JSON a case. docs/performance.md explains cases and figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"k8s.io/klog/v2"
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

// logf tells a human what goes on. stdout is for results.
func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func parseFlags() *settings {
	o := &settings{}
	flag.StringVar(&o.cases, "cases", "*", "Cases to run: names or patterns, separated by commas; * stands for a part between slashes, or alone for all. Cases: "+
		strings.Join(caseNames(false), " ")+", and with -cluster "+strings.Join(caseNames(true), " "))
	flag.IntVar(&o.rounds, "rounds", 6, "How often claims and plain creates take turns in each case")
	flag.IntVar(&o.count, "count", 2000, "Claims a round with 64 clients. Other cases make a fixed part of it")
	flag.IntVar(&o.connections, "connections", 4, "HTTP/2 connections that 64 clients share")
	flag.IntVar(&o.pool, "pool", 100000, "Size of the large pool of the case pool/100k")
	flag.StringVar(&o.dataDir, "data-dir", "_output", "Folder for data, on the disk to measure: a new one in it, removed at the end")
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
	if min(o.rounds, o.count, o.connections, o.pool) < 1 {
		return errors.New("-rounds, -count, -connections and -pool must be at least 1")
	}
	for pattern := range strings.SplitSeq(o.cases, ",") {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("-cases: pattern %q: %w", pattern, err)
		}
	}
	if known := caseNames(o.cluster); !slices.ContainsFunc(known, o.wants) {
		return fmt.Errorf("-cases: none of %s matches %q", strings.Join(known, " "), o.cases)
	}
	return nil
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

// run runs the cases. It returns true if goals were missed and that matters.
func run(ctx context.Context, o *settings) (missed bool, err error) {
	if err := o.validate(); err != nil {
		return false, err
	}
	// The etcd in this process warns of every slow write. What matters comes back as an error.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	// It is below the working folder, because /tmp may be in memory, where an fsync costs nothing.
	if err := os.MkdirAll(o.dataDir, 0o755); err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp(o.dataDir, "bench-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	all := &stage{settings: o, ctx: ctx, dir: dir, shared: &shared{}}
	err = all.run(func() {
		all.all = all
		for _, c := range cases {
			if c.cluster != o.cluster || !o.wants(c.name) {
				continue
			}
			one := *all
			one.dir = all.TempDir()
			one.cleanups = []func(){func() { check(os.RemoveAll(one.dir)) }}
			r := &result{Case: c.name, Clients: c.clients}
			if err := one.run(func() { c.run(&one, r) }); err != nil {
				check(fmt.Errorf("%s: %w", c.name, err))
			}
			check(r.judge(c.goals))
			check(r.print(os.Stdout))
			missed = missed || r.OK != nil && !*r.OK
		}
	})
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return missed && o.check, err
}
