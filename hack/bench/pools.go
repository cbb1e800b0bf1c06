// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

const (
	largePool = "pool/100k"
	smallPool = 1000
)

// poolCount is how many claims a round has. The small pool must stay small, so
// all rounds together take no more than it holds, and half as much.
func (o *settings) poolCount() int { return max(min(o.few(), smallPool*3/2/o.rounds), 1) }

// runPools compares a server with a large pool with one that has a small pool.
// They take turns; the one whose turn it is not has nothing to do.
func (b *bench) runPools(ctx context.Context) (err error) {
	if !b.wants(largePool) {
		return nil
	}
	bytes, err := bytesPerSandbox(b.pool)
	if err != nil {
		return err
	}
	var fixtures []*fixture
	for _, size := range []int{b.pool, smallPool} {
		// On average over the rounds the pool has its nominal size.
		p := pool{namespace: "bench", size: size + b.operations(b.poolCount())/2}
		s, err := filledServer(ctx, b.settings, filepath.Join(b.dir, fmt.Sprint("pool-", size)), []pool{p})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		f, err := newFixture(ctx, largePool, 1, s, p)
		if err != nil {
			return fmt.Errorf("%s: %w", largePool, err)
		}
		fixtures = append(fixtures, f)
	}
	r, err := b.runPool(ctx, fixtures[0], fixtures[1])
	if err != nil {
		return fmt.Errorf("%s: %w", largePool, err)
	}
	r.BytesPerSandbox = number(bytes)
	r.judge(atMost("pool_ratio", r.PoolRatio, 1.3), atMost("bytes_per_indexed_sandbox", r.BytesPerSandbox, 1024))
	return b.report(r)
}

func (b *bench) runPool(ctx context.Context, large, small *fixture) (*result, error) {
	count := b.poolCount()
	r, all, err := large.compare(ctx, b.rounds,
		large.claimer.arm("large", count, 1),
		large.plain.arm(count),
		small.claimer.arm("small", count, 1))
	if err == nil {
		err = small.claimer.verify(ctx)
	}
	if err != nil {
		return nil, err
	}
	r.Claims += small.claimer.claims
	r.Failed += small.claimer.failed
	r.Pool = b.pool
	r.poolFigures = &poolFigures{
		SmallPool:    smallPool,
		SmallPoolP50: number(all[2].p50()),
		PoolRatio:    number(ratio(all[0], all[2], sample.p50)),
	}
	return r, nil
}

// noWaiters is told of stock that no claim waits for.
type noWaiters struct{}

func (noWaiters) Stocked(poolindex.Pool) {}

// bytesPerSandbox is what the index of n sandboxes adds to the sandboxes
// themselves, which are in memory anyway, in the watch cache.
func bytesPerSandbox(n int) (float64, error) {
	sandboxes := make([]*v1alpha1.Sandbox, n)
	for i := range sandboxes {
		sandboxes[i] = indexedSandbox(i)
	}
	index := poolindex.New()
	feed := poolindex.NewFeed(index, noWaiters{}, time.Now)
	before := heapInUse()
	for _, sandbox := range sandboxes {
		feed.SandboxChanged(sandbox)
	}
	grown := heapInUse() - before
	runtime.KeepAlive(sandboxes)
	if indexed := index.Available(poolindex.Pool{Namespace: "bench", Name: setName, UID: setName}); indexed != n {
		return 0, fmt.Errorf("the index holds %d of %d sandboxes", indexed, n)
	}
	return float64(grown) / float64(n), nil
}

// indexedSandbox has what the index looks at.
func indexedSandbox(i int) *v1alpha1.Sandbox {
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Namespace:       "bench",
		Name:            fmt.Sprintf("%s-%06d", setName, i),
		ResourceVersion: strconv.Itoa(i + 1),
		Labels:          map[string]string{v1alpha1.LabelTemplateHash: "58b9c4d5f7"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet",
			Name: setName, UID: setName, Controller: new(true),
		}},
	}}
	sandbox.Status.Phase = v1alpha1.SandboxRunning
	sandbox.Status.PodInfo.PodIP = "127.1.1.1"
	sandbox.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue}}
	return sandbox
}

// heapInUse is how much memory is reachable.
func heapInUse() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one found in pools
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
