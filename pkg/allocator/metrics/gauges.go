// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

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

	mu sync.Mutex
	// reads are the functions that add what an allocator has.
	reads map[*func(*Reading)]struct{}
}

var live collector

// Collect lets the gauges show what read adds, until the returned function is called.
func Collect(read func(*Reading)) (remove func()) { return live.add(&read) }

func (c *collector) add(read *func(*Reading)) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reads == nil {
		c.reads = map[*func(*Reading)]struct{}{}
	}
	c.reads[read] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.reads, read)
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
	for p, of := range total.Pools {
		gauge(poolSandboxes, float64(of.Available), "available", p.Namespace, p.Name)
		gauge(poolSandboxes, float64(of.Taken), "taken", p.Namespace, p.Name)
		gauge(poolReplicas, float64(of.Replicas), p.Namespace, p.Name)
		gauge(poolWaiting, float64(of.Claims), p.Namespace, p.Name)
		gauge(poolMissing, float64(of.Sandboxes), p.Namespace, p.Name)
	}
	gauge(waitingWithoutSet, float64(total.WithoutSet))
	gauge(unfinishedGauge, float64(total.Unfinished))
	gauge(indexBehind, total.Behind.Seconds())
}

// Reading is what the allocators have at one time.
type Reading struct {
	Pools map[types.NamespacedName]PoolReading
	// WithoutSet is how many claims wait for something that does not exist or cannot serve
	// them, and Unfinished how many this server finishes.
	WithoutSet, Unfinished int
	// Behind is for how long the index has been waiting to hear of a transaction.
	Behind time.Duration
}

// PoolReading is what a pool has at one time.
type PoolReading struct {
	poolindex.Depth
	queue.Demand
	// Replicas is how many sandboxes the pool is meant to hold.
	Replicas int32
}

func (c *collector) read() Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := Reading{Pools: map[types.NamespacedName]PoolReading{}}
	for read := range c.reads {
		(*read)(&total)
	}
	return total
}
