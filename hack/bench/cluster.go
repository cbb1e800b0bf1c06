// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

// The cases against a real control plane: through the aggregator, with pods that
// kwok simulates, two API servers, and replenishment on.
const (
	aggregatedOne  = "aggregated/c1"
	aggregatedMany = "aggregated/c64"
	fillThousand   = "fill/1000"
	warmWrites     = "writes/warm-claim"

	fillSize = 1000
	// warmClaims are how many claims are made to count what one writes.
	warmClaims = 100
)

func clusterCaseNames() []string {
	return append([]string{gatewayRoutes}, planeCaseNames()...)
}

// planeCaseNames are those of the cases for which a control plane is started.
func planeCaseNames() []string {
	return []string{fillThousand, aggregatedOne, aggregatedMany, warmWrites, agentOne, agentMany, agentWrites, gatewayRoute, gatewayCreate, gatewayCreateMany}
}

// cluster is a control plane with Sandlot in it.
type cluster struct {
	*server // its clients go through the aggregator
	plane   *controlplane.ControlPlane
	kube    kubernetes.Interface
	// etcdMetrics is where our etcd serves its metrics.
	etcdMetrics string
}

func startCluster(ctx context.Context, o *settings, dir string) (*cluster, error) {
	began := time.Now()
	plane, err := controlplane.Start(ctx, controlplane.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	sandlot, err := plane.Install(ctx, controlplane.SandlotOptions{BinDir: filepath.Dir(o.program)})
	if err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	c := &cluster{server: &server{}, plane: plane, etcdMetrics: sandlot.EtcdMetricsURL()}
	if err := c.connect(sandlot, o.connections); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	logf("control plane and Sandlot ready after %s", since(began))
	return c, nil
}

func (c *cluster) connect(sandlot *controlplane.Sandlot, connections int) (err error) {
	config := c.plane.Config()
	if c.clients, err = newClients(config, connections); err != nil {
		return err
	}
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	for i := range sandlot.APIServers() {
		direct, err := sandlot.Direct(i, config)
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(direct)
		if err != nil {
			return err
		}
		c.measured = append(c.measured, client.Discovery().RESTClient())
	}
	return nil
}

// makePool makes a namespace with a set, and waits until it is full.
func (c *cluster) makePool(ctx context.Context, p pool) error {
	_, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: setName}}
	set.Spec.Replicas = new(int32(p.size))
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(podTemplate)}
	if _, err := c.clients[0].AgentsV1alpha1().SandboxSets(p.namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return err
	}
	return c.awaitStock(ctx, p)
}

// runCluster runs the cases that need a control plane.
func (b *bench) runCluster(ctx context.Context) (err error) {
	if !slices.ContainsFunc(planeCaseNames(), b.wants) {
		return nil
	}
	c, err := startCluster(ctx, b.settings, filepath.Join(b.dir, "cluster"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.plane.Stop()) }()
	gateways := &gateways{bench: b}
	defer func() { err = errors.Join(err, gateways.close()) }()
	for _, step := range []struct {
		name string
		run  func(context.Context, *cluster) (*result, error)
	}{
		{fillThousand, b.runFill},
		{aggregatedOne, b.aggregated(aggregatedOne, 1, b.few(), atMostP50(1.3))},
		{aggregatedMany, b.aggregated(aggregatedMany, manyClients, b.burst(), atLeastRate(0.65))},
		{warmWrites, b.runWarmWrites},
		{agentOne, b.agents(agentOne, 1, b.few(), atMostAgentP50)},
		{agentMany, b.agents(agentMany, manyClients, b.burst(), atLeastAgentRate)},
		{agentWrites, b.runAgentWrites},
		{gatewayRoute, gateways.run(b.runRoute)},
		{gatewayCreate, gateways.run(b.runCreates(gatewayCreate, 1, b.few(), atMostCreateRatio))},
		{gatewayCreateMany, gateways.run(b.runCreates(gatewayCreateMany, manyClients, b.burst(), forInformation))},
	} {
		if !b.wants(step.name) {
			continue
		}
		r, err := step.run(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if err := b.report(r); err != nil {
			return err
		}
	}
	return nil
}

// burst is how many claims 64 clients make a round: a pool of pods can hold so
// many on one machine.
func (o *settings) burst() int { return max(o.count/4, 1) }

func atMostP50(limit float64) func(*result) goal {
	return func(r *result) goal { return atMost("p50_ratio", r.P50Ratio, limit) }
}

func atLeastRate(limit float64) func(*result) goal {
	return func(r *result) goal { return atLeast("rate_ratio", r.RateRatio, limit) }
}

// aggregated compares claims with plain creates. A round of claims takes less than
// half of the pool, so it meets no refill unless it lasts for more than five seconds
// or pauses; the refill comes after it. A round of either begins when the pool is
// full and nothing else goes on.
func (b *bench) aggregated(name string, clients, count int, goalOf func(*result) goal) func(context.Context, *cluster) (*result, error) {
	return func(ctx context.Context, c *cluster) (*result, error) {
		p := pool{namespace: fmt.Sprintf("bench-c%d", clients), size: count * 5 / 2}
		if err := c.makePool(ctx, p); err != nil {
			return nil, err
		}
		f, err := newFixture(ctx, name, clients, c.server, p)
		if err != nil {
			return nil, err
		}
		f.profiles = b.profiles
		claims, plains := f.claimer.arm("claim", count, 1), f.plain.arm(count)
		settled := func(ctx context.Context) error { return c.settle(ctx, p) }
		claims.before, plains.before = settled, settled
		r, _, err := f.compare(ctx, b.rounds, claims, plains)
		if err != nil {
			return nil, err
		}
		r.Pool = p.size
		r.judge(goalOf(r))
		return r, nil
	}
}

// settle waits until the pool is full and writes have stopped.
func (c *cluster) settle(ctx context.Context, p pool) error {
	if err := c.awaitStock(ctx, p); err != nil {
		return err
	}
	_, err := c.quiet(ctx)
	return err
}

// runFill measures how a pool is filled with sandboxes that are ready.
func (b *bench) runFill(ctx context.Context, c *cluster) (*result, error) {
	before, err := c.quiet(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := c.makePool(ctx, pool{namespace: "bench-fill", size: fillSize}); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := c.quiet(ctx)
	if err != nil {
		return nil, err
	}
	wrote := after.minus(before).per(fillSize)
	r := &result{Case: fillThousand, Clients: 1, Pool: fillSize, writeFigures: &writeFigures{
		FillS: number(took.Seconds()), FillPerS: number(fillSize / took.Seconds()),
		OwnWrites: number(wrote.own.total()), Own: wrote.own, Cluster: wrote.cluster,
		EtcdPuts: number(wrote.etcdPuts), EtcdTxns: number(wrote.etcdTxns),
	}}
	r.judge(atMost("own_writes", r.OwnWrites, 4), atMost("pod creates", number(wrote.cluster["create pods"]), 1.001))
	return r, nil
}

// runWarmWrites counts what a claim of one warm sandbox writes, and what is
// written in its wake, without the sandbox that takes its place.
func (b *bench) runWarmWrites(ctx context.Context, c *cluster) (*result, error) {
	p := pool{namespace: "bench-writes", size: 1 + warmClaims}
	if err := c.makePool(ctx, p); err != nil {
		return nil, err
	}
	if err := c.patchSet(ctx, p, map[string]any{"scaleStrategy": hold}); err != nil {
		return nil, err
	}
	f, err := newFixture(ctx, warmWrites, 1, c.server, p)
	if err != nil {
		return nil, err
	}
	r, err := c.warmWrites(ctx, warmWrites, p, f.claimer.arm("claim", warmClaims, 1))
	if err != nil {
		return nil, err
	}
	r.judge(atMost("transactions_per_claim", r.Transactions, 1))
	return r, f.claimer.verify(ctx)
}

// warmWrites counts what is written while an arm makes warmClaims claims, and after that.
func (c *cluster) warmWrites(ctx context.Context, name string, p pool, claims arm) (*result, error) {
	before, err := c.quiet(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := claims.run(ctx, 1); err != nil {
		return nil, err
	}
	after, err := c.quiet(ctx)
	if err != nil {
		return nil, err
	}
	wrote := after.minus(before).per(warmClaims)
	return &result{Case: name, Clients: 1, Pool: p.size, writeFigures: &writeFigures{
		OwnWrites: number(wrote.own.total()), Own: wrote.own, Cluster: wrote.cluster,
		Transactions: number(wrote.transactions), EtcdPuts: number(wrote.etcdPuts), EtcdTxns: number(wrote.etcdTxns),
	}}, nil
}
