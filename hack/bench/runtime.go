// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	runtimeOne  = "runtime/c1"
	runtimeMany = "runtime/100"

	// agentRuntime is the runtime that takes the environment of claims, and
	// agentRuntimePort where it listens in each sandbox.
	agentRuntime     = "agent-runtime"
	agentRuntimePort = 49983
	// runtimeDelay is how long a runtime takes to answer.
	runtimeDelay = time.Millisecond
)

// withEnv gives a claim an environment.
func withEnv(claim *v1alpha1.SandboxClaim) {
	claim.Spec.EnvVars = map[string]string{"SESSION": "b5d2", "ENDPOINT": "https://example.com/api", "MODE": "bench"}
}

// runRuntimes compares claims with envVars with others. The sandboxes of a pool have an
// agent-runtime, which this process is.
func (b *bench) runRuntimes(ctx context.Context) (err error) {
	one, many := b.wants(runtimeOne), b.wants(runtimeMany)
	if !one && !many {
		return nil
	}
	agents, err := startAgents(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.close()) }()
	few := 1 + b.operations(b.few())
	bare := pool{namespace: "bench-bare", size: few}
	single := pool{namespace: "bench-runtime", size: few, runtime: true}
	large := pool{namespace: "bench-runtime-100", size: few + batchSize*b.operations(b.batches()), runtime: true}
	s, err := filledServer(ctx, b.settings, filepath.Join(b.dir, "runtimes"), []pool{bare, single, large})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	compare := &runtimeCompare{bench: b, server: s, agents: agents}
	if one {
		err = compare.one(ctx, single, bare)
	}
	if err == nil && many {
		err = compare.many(ctx, large)
	}
	return err
}

// runtimeCompare is what the cases share.
type runtimeCompare struct {
	*bench
	server *server
	agents *agents
}

// one compares a claim of one with envVars with one without, on sandboxes without a
// runtime.
func (c *runtimeCompare) one(ctx context.Context, p, bare pool) error {
	f, err := newFixture(ctx, runtimeOne, 1, c.server, p)
	if err != nil {
		return fmt.Errorf("%s: %w", runtimeOne, err)
	}
	f.claimer.change = withEnv
	plain := newClaimer(c.server, bare)
	return c.compare(ctx, f, 1, []arm{
		f.claimer.arm("claim with envVars", c.few(), 1),
		f.plain.arm(c.few()),
		plain.arm("plain claim", c.few(), 1),
	}, 2)
}

// many compares a claim of 100 with a claim of one, both with envVars.
func (c *runtimeCompare) many(ctx context.Context, p pool) error {
	f, err := newFixture(ctx, runtimeMany, 1, c.server, p)
	if err != nil {
		return fmt.Errorf("%s: %w", runtimeMany, err)
	}
	f.claimer.change = withEnv
	return c.compare(ctx, f, batchSize, []arm{
		f.claimer.arm("claim of 100", c.batches(), batchSize),
		f.plain.arm(c.few()),
		f.claimer.arm("claim of 1", c.few(), 1),
	}, 3)
}

// compare runs the arms, and judges the first by the last.
func (c *runtimeCompare) compare(ctx context.Context, f *fixture, replicas int, arms []arm, most float64) error {
	f.profiles = c.profiles
	before := c.agents.calls.Load()
	r, all, err := f.compare(ctx, c.rounds, arms...)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	r.runtimeFigures = &runtimeFigures{
		Calls:        int(c.agents.calls.Load() - before),
		OtherP50:     number(all[2].p50()),
		RuntimeRatio: number(ratio(all[0], all[2], sample.p50)),
	}
	// Without a call there was nothing to compare.
	r.judge(atMost("runtime_ratio", r.RuntimeRatio, most),
		atLeast("runtime_calls", number(r.Calls), float64(c.rounds*arms[0].count*replicas)))
	return c.report(r)
}

// agents are the runtimes of all sandboxes: addresses in 127.0.0.0/8 are all this
// machine's.
type agents struct {
	server *http.Server
	ended  chan error
	// calls counts those that were answered.
	calls atomic.Int64
}

func startAgents(ctx context.Context) (*agents, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort("0.0.0.0", strconv.Itoa(agentRuntimePort)))
	if err != nil {
		return nil, fmt.Errorf("runtimes: %w", err)
	}
	a := &agents{ended: make(chan error, 1)}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: requestTimeout}
	go func() { a.ended <- a.server.Serve(loopback{listener}) }()
	return a, nil
}

// ServeHTTP answers after runtimeDelay.
func (a *agents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if sleep(r.Context(), runtimeDelay) == nil {
		a.calls.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (a *agents) close() error {
	err := a.server.Close()
	if ended := <-a.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// loopback takes connections from this machine only.
type loopback struct{ net.Listener }

func (l loopback) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if address, ok := conn.LocalAddr().(*net.TCPAddr); ok && address.IP.IsLoopback() {
			return conn, nil
		}
		_ = conn.Close()
	}
}
