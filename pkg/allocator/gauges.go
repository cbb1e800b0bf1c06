// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

var (
	// Not just namespace: that is what a target's own namespace is called where
	// Prometheus finds its targets in a cluster.
	ofPool = []string{"sandboxset_namespace", "sandboxset"}

	poolSandboxes = metrics.NewDesc("sandlot_pool_sandboxes",
		"Sandboxes of a pool in this server's index: available ones, and those taken by claims that are being bound.",
		append([]string{"state"}, ofPool...), nil, metrics.ALPHA, "")
	poolReplicas = metrics.NewDesc("sandlot_pool_replicas",
		"Sandboxes that a pool is meant to hold.", ofPool, nil, metrics.ALPHA, "")
	poolWaiting = metrics.NewDesc("sandlot_pool_waiting_claims",
		"Claims that this server lets wait for sandboxes of a pool; one that several pools may serve counts in each.", ofPool, nil, metrics.ALPHA, "")
	poolMissing = metrics.NewDesc("sandlot_pool_missing_sandboxes",
		"Sandboxes that those claims lack.", ofPool, nil, metrics.ALPHA, "")
	waitingWithoutSet = metrics.NewDesc("sandlot_claims_without_sandboxset",
		"Claims that this server lets wait for a SandboxSet or SandboxTemplate that does not exist or cannot serve them.", nil, nil, metrics.ALPHA, "")
	unfinishedGauge = metrics.NewDesc("sandlot_unfinished_claims",
		"Claims that this server finishes in the background.", nil, nil, metrics.ALPHA, "")
	indexBehind = metrics.NewDesc("sandlot_pool_index_behind_seconds",
		"For how long the pool index has been waiting to hear of a transaction of this server.", nil, nil, metrics.ALPHA, "")
)

// collector reads the allocators that run in this process when it is asked, so
// that a claim does not pay for the figures, and a set that is gone leaves none
// behind. There is one allocator in a process, outside of tests; several are
// added up. The names in the labels are those of SandboxSets that exist: what
// claims ask for beyond that is theirs to choose, and counted as one.
type collector struct {
	metrics.BaseStableCollector

	mu   sync.Mutex
	runs map[*Allocator]struct{}
}

var live collector

// add lets the collector read a until the returned function is called.
func (c *collector) add(a *Allocator) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[*Allocator]struct{}{}
	}
	c.runs[a] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.runs, a)
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{
		poolSandboxes, poolReplicas, poolWaiting, poolMissing, waitingWithoutSet, unfinishedGauge, indexBehind,
	} {
		ch <- desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	total := c.read()
	gauge := func(desc *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, labels...)
	}
	for p, of := range total.pools {
		gauge(poolSandboxes, float64(of.Available), "available", p.Namespace, p.Name)
		gauge(poolSandboxes, float64(of.Taken), "taken", p.Namespace, p.Name)
		gauge(poolReplicas, float64(of.replicas), p.Namespace, p.Name)
		gauge(poolWaiting, float64(of.Claims), p.Namespace, p.Name)
		gauge(poolMissing, float64(of.Sandboxes), p.Namespace, p.Name)
	}
	gauge(waitingWithoutSet, float64(total.withoutSet))
	gauge(unfinishedGauge, float64(total.unfinished))
	gauge(indexBehind, total.behind.Seconds())
}

// reading is what one look at the allocators shows.
type reading struct {
	pools                  map[types.NamespacedName]poolReading
	withoutSet, unfinished int
	behind                 time.Duration
}

type poolReading struct {
	poolindex.Depth
	queue.Demand
	replicas int32
}

func (c *collector) read() reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := reading{pools: map[types.NamespacedName]poolReading{}}
	for a := range c.runs {
		a.readInto(&total)
	}
	return total
}

func (a *Allocator) readInto(total *reading) {
	total.behind = max(total.behind, a.lag.behind())
	total.unfinished += int(a.finisher.known.mine.Load())
	depths, sets := a.stock.index.Depths(), a.stock.sets.replicas()
	demands := a.stock.queue.Demands()
	for p, replicas := range sets {
		name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		of := total.pools[name]
		of.Available += depths[p].Available
		of.Taken += depths[p].Taken
		of.Claims += demands[p].Claims
		of.Sandboxes += demands[p].Sandboxes
		of.replicas = replicas
		total.pools[name] = of
	}
	for p, demand := range demands {
		if _, exists := sets[p]; !exists {
			total.withoutSet += demand.Claims
		}
	}
}

// lag measures how far the index is behind the store: the time until the watch
// shows what this server wrote. It waits for one transaction at a time, so that
// it costs next to nothing however many there are.
type lag struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// heard is the newest revision that the watch of sandboxes has shown.
	heard uint64
	// awaited is the revision that was written at since; 0 is none.
	awaited uint64
	since   time.Time
}

// expect records that this server changed sandboxes at a revision. The watch may
// have been faster than etcd's answer.
func (l *lag) expect(revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.heard >= revision:
		indexLag.Observe(0)
	case l.awaited == 0:
		l.awaited, l.since = revision, l.clock.Now()
	}
}

// observe records that the watch of sandboxes has come to a revision.
func (l *lag) observe(revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = max(l.heard, revision)
	if l.awaited != 0 && l.heard >= l.awaited {
		indexLag.Observe(l.clock.Since(l.since).Seconds())
		l.awaited = 0
	}
}

// behind is for how long the index has been waiting for what must come.
func (l *lag) behind() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaited == 0 {
		return 0
	}
	return l.clock.Since(l.since)
}
