// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	goruntime "runtime"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
)

const (
	// startLarge starts a server whose store has a large pool.
	startLarge = "start/100k"
	// startRounds is how often, or less if -rounds is.
	startRounds = 3
	// cachedSandboxes are kept to see what one takes.
	cachedSandboxes = 10_000
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
	// StoredBytes is what one sandbox takes in etcd, and CachedBytes what it takes in the
	// memory of a program that keeps it: the API server and the controller manager.
	StoredBytes int    `json:"bytes_per_stored_sandbox"`
	CachedBytes number `json:"bytes_per_cached_sandbox"`
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
	stored, err := storedSandbox(ctx, filepath.Join(dir, "etcd"), p)
	if err != nil {
		return fmt.Errorf("%s: %w", startLarge, err)
	}
	cached, err := cachedBytes(stored, cachedSandboxes)
	if err != nil {
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
		StoredBytes: len(stored), CachedBytes: number(cached),
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

// storedSandbox returns a sandbox of a pool as it is in the etcd of a server that does not
// run.
func storedSandbox(ctx context.Context, dir string, p pool) (value []byte, err error) {
	etcd, client, err := startEtcd(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close(), etcd.Close()) }()
	prefix := sandboxKeys + p.namespace + "/"
	stored, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithLimit(1))
	if err != nil {
		return nil, err
	}
	if len(stored.Kvs) != 1 {
		return nil, fmt.Errorf("etcd has nothing below %s", prefix)
	}
	return stored.Kvs[0].Value, nil
}

// cachedBytes is how much memory each of n decoded copies of a stored sandbox takes.
func cachedBytes(stored []byte, n int) (float64, error) {
	codec, kept := apiserver.NewStorageCodec(), make([]runtime.Object, n)
	before := heapInUse()
	for i := range kept {
		var err error
		if kept[i], err = runtime.Decode(codec, stored); err != nil {
			return 0, fmt.Errorf("decoding a stored sandbox: %w", err)
		}
	}
	grown := heapInUse() - before
	goruntime.KeepAlive(kept)
	return float64(grown) / float64(n), nil
}
