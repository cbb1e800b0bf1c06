// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

const (
	// startLarge starts a server whose store has a large pool.
	startLarge = "start/100k"
	// startRounds is how often, or less if -rounds is.
	startRounds = 3
)

// startFigures are what a start takes with a large pool in the store, in seconds, the
// median of the rounds: until the program says that it is ready, and until the pool is in
// place. It is when the set, whose spec is changed as soon as the server takes that, has
// a status of its new spec with all of its sandboxes.
type startFigures struct {
	Ready   number `json:"start_ready_s"`
	InPlace number `json:"start_pool_s"`
	// CPU is the processor time of the whole start, in seconds.
	CPU number `json:"start_cpu_s"`
}

func (b *bench) runStarts(ctx context.Context) error {
	if !b.wants(startLarge) {
		return nil
	}
	dir, p := filepath.Join(b.dir, "start"), pool{namespace: "bench", size: b.pool}
	s, err := filledServer(ctx, b.settings, dir, []pool{p})
	if err != nil {
		return fmt.Errorf("%s: %w", startLarge, err)
	}
	if err := s.close(); err != nil {
		return fmt.Errorf("%s: %w", startLarge, err)
	}
	var ready, inPlace, cpu []float64
	for round := range min(b.rounds, startRounds) {
		// The set wants one more than the last time, of which it may start nothing.
		one, err := b.start(ctx, dir, p, p.size+1+round)
		if err != nil {
			return fmt.Errorf("%s: %w", startLarge, err)
		}
		logf("%s: ready after %.1f s, pool in place after %.1f s, %.1f s of processor time", startLarge,
			one.ready.Seconds(), one.inPlace.Seconds(), one.cpu.Seconds())
		ready, inPlace, cpu = append(ready, one.ready.Seconds()), append(inPlace, one.inPlace.Seconds()), append(cpu, one.cpu.Seconds())
	}
	r := &result{Case: startLarge, Clients: 1, Pool: b.pool, startFigures: &startFigures{
		Ready: number(median(ready)), InPlace: number(median(inPlace)), CPU: number(median(cpu)),
	}}
	r.judge(atMost("start_ready_s", r.Ready, 5), atMost("start_pool_s", r.InPlace, 5))
	return b.report(r)
}

// started is what one start took.
type started struct{ ready, inPlace, cpu time.Duration }

// start starts a server on dir, and has its set want other replicas.
func (b *bench) start(ctx context.Context, dir string, p pool, replicas int) (one started, err error) {
	began := time.Now()
	s, err := startServer(ctx, b.program, dir, 1)
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	one.ready = time.Since(began)
	if err := s.patchSet(ctx, p, map[string]any{"replicas": replicas}); err != nil {
		return one, err
	}
	if err := s.awaitStock(ctx, p); err != nil {
		return one, err
	}
	one.inPlace = time.Since(began)
	one.cpu, err = s.process.cpu(ctx)
	return one, err
}
