// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

const (
	manyClients = 64
	batchSize   = 100
)

// claimCase compares claims with plain creates.
type claimCase struct {
	name    string
	clients int
	// stock is how many sandboxes the pool of the case must have.
	stock func(*settings) int
	// held, if set, is how many sandboxes a second pool must have, which is not
	// refilled.
	held func(*settings) int
	run  func(context.Context, *settings, *fixture) (*result, error)
}

// claimCases share a server, on which each has a pool of its own.
var claimCases = []claimCase{
	{
		name: "direct/c1", clients: 1,
		stock: func(o *settings) int { return 1 + o.operations(o.few()) },
		run: func(ctx context.Context, o *settings, f *fixture) (*result, error) {
			r, _, err := f.compare(ctx, o.rounds, f.claimer.arm("claim", o.few(), 1), f.plain.arm(o.few()))
			if err == nil {
				r.judge(atMost("p50_ratio", r.P50Ratio, 1.3))
			}
			return r, err
		},
	},
	{
		name: "direct/c64", clients: manyClients,
		stock: func(o *settings) int { return 1 + o.operations(o.count) },
		run: func(ctx context.Context, o *settings, f *fixture) (*result, error) {
			r, _, err := f.compare(ctx, o.rounds, f.claimer.arm("claim", o.count, 1), f.plain.arm(o.count))
			if err == nil {
				r.judge(atLeast("rate_ratio", r.RateRatio, 0.8))
			}
			return r, err
		},
	},
	{
		name: "batch/100", clients: 1,
		stock: func(o *settings) int { return 1 + batchSize*o.operations(o.batches()) + o.operations(o.few()) },
		run:   runBatch,
	},
	{
		name: "direct/c64+refill", clients: manyClients,
		stock: (*settings).refillPool,
		held:  (*settings).heldPool,
		run:   runRefill,
	},
}

// caseNames are in the order in which the cases run.
func caseNames() []string {
	names := []string{etcdOne, etcdMany}
	for _, c := range claimCases {
		names = append(names, c.name)
	}
	names = append(names, largePool, startLarge)
	for _, c := range memoryCases {
		names = append(names, c.name)
	}
	return append(names, setsOfTemplate, fillReferring, waitingIdle, waitingAnswer, runtimeOne, runtimeMany)
}

// few is how many operations a round has where one client waits for each.
func (o *settings) few() int { return max(o.count/10, 1) }

// batches is how many claims of batchSize a round has.
func (o *settings) batches() int { return max(o.count/100, 1) }

// operations is how many an arm has in all its rounds.
func (o *settings) operations(count int) int { return warmUp(count) + o.rounds*count }

// bench is one run.
type bench struct {
	*settings
	dir    string
	out    io.Writer
	missed bool
}

func (b *bench) run(ctx context.Context) error {
	steps := []func(context.Context) error{b.runEtcd, b.runClaims, b.runPools, b.runStarts, b.runMemory, b.runSets, b.runFills, b.runWaiting, b.runWaitingAnswer, b.runRuntimes}
	if b.cluster {
		steps = []func(context.Context) error{b.runRoutes, b.runCluster}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) report(r *result) error {
	b.missed = b.missed || r.OK != nil && !*r.OK
	return r.print(b.out)
}

// runClaims runs the cases that share a server.
func (b *bench) runClaims(ctx context.Context) (err error) {
	var cases []claimCase
	var pools, all []pool
	held := map[string]pool{}
	for _, c := range claimCases {
		if !b.wants(c.name) {
			continue
		}
		cases = append(cases, c)
		pools = append(pools, pool{namespace: fmt.Sprintf("bench-%d", len(pools)), size: c.stock(b.settings)})
		if c.held != nil {
			held[c.name] = pool{namespace: fmt.Sprintf("bench-held-%d", len(pools)), size: c.held(b.settings)}
			all = append(all, held[c.name])
		}
	}
	all = append(all, pools...)
	if len(cases) == 0 {
		return nil
	}
	s, err := filledServer(ctx, b.settings, filepath.Join(b.dir, "claims"), all)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for i, c := range cases {
		if err := b.runClaimCase(ctx, c, s, pools[i], held[c.name]); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (b *bench) runClaimCase(ctx context.Context, c claimCase, s *server, p, held pool) error {
	f, err := newFixture(ctx, c.name, c.clients, s, p)
	if err != nil {
		return err
	}
	f.profiles = b.profiles
	if held.size > 0 {
		f.held = newClaimer(s, held)
	}
	r, err := c.run(ctx, b.settings, f)
	if err != nil {
		return err
	}
	return b.report(r)
}

// fixture is what a case works with.
type fixture struct {
	name    string
	clients int
	claimer *claimer
	plain   *plain
	// held claims from a pool that is not refilled, where a case has one.
	held *claimer
	// profiles is where to keep profiles, if they are wanted.
	profiles string
}

// newFixture makes one claim, to learn how large plain objects are to be.
func newFixture(ctx context.Context, name string, clients int, s *server, p pool) (*fixture, error) {
	f := &fixture{name: name, clients: clients, claimer: newClaimer(s, p)}
	err := f.claimer.arm("", 1, 1).do(ctx, 0)
	if err == nil {
		f.plain, err = newPlain(ctx, s, p, f.claimer.bytes)
	}
	return f, err
}

// compare runs the arms and returns what each did. The first is of claims and the
// second of plain creates: these two make the result.
func (f *fixture) compare(ctx context.Context, rounds int, arms ...arm) (*result, []series, error) {
	for i, a := range arms {
		arms[i].profile = profileOf(f.claimer.server, f.profiles, f.name+"-"+a.name)
	}
	all, err := compare(ctx, f.name, f.clients, rounds, arms)
	if err != nil {
		return nil, nil, err
	}
	if err := f.claimer.verify(ctx); err != nil {
		return nil, nil, err
	}
	claims, plains := all[0], all[1]
	return &result{Case: f.name, Clients: f.clients, claimFigures: &claimFigures{
		Claims: f.claimer.claims, Failed: f.claimer.failed,
		ClaimsPerS: number(claims.rate()), ClaimP50: number(claims.p50()), ClaimP99: number(claims.p99()),
		PlainPerS: number(plains.rate()), PlainP50: number(plains.p50()), PlainP99: number(plains.p99()),
		P50Ratio:  number(ratio(claims, plains, sample.p50)),
		RateRatio: number(ratio(claims, plains, sample.rate)),
		ClaimCPU:  number(claims.cpuEach()), PlainCPU: number(plains.cpuEach()),
		ClaimBytes: f.claimer.bytes, PlainBytes: f.plain.bytes,
	}}, all, nil
}

// runBatch compares claims of 100 with claims of 1.
func runBatch(ctx context.Context, o *settings, f *fixture) (*result, error) {
	r, all, err := f.compare(ctx, o.rounds,
		f.claimer.arm("claim of 100", o.batches(), batchSize),
		f.plain.arm(o.few()),
		f.claimer.arm("claim of 1", o.few(), 1))
	if err != nil {
		return nil, err
	}
	batch, single := all[0], all[2]
	r.batchFigures = &batchFigures{
		SingleP50:     number(single.p50()),
		BatchRatio:    number(ratio(batch, single, sample.p50)),
		SandboxesPerS: number(batchSize * batch.rate()),
	}
	r.judge(atMost("batch_ratio", r.BatchRatio, 10))
	return r, nil
}
