// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	extensions "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

const (
	// quietFor is how long there may be no write until everything in the wake of something
	// has been written. Leases are renewed all the time and do not count.
	quietFor = 3 * time.Second
	// warmClaims are how many claims are made to count what one writes.
	warmClaims = 100
)

// cluster is a control plane with Sandlot in it: pods that kwok simulates, two API servers,
// and replenishment on.
type cluster struct {
	*server // its clients go through the aggregator
	plane   *controlplane.ControlPlane
	kube    kubernetes.Interface
	// etcdMetrics is where our etcd serves its metrics.
	etcdMetrics string
}

// cluster starts the control plane for the first case that needs one. It stays until the last
// case has ended.
func (t *stage) cluster() *cluster {
	if t.inCluster != nil {
		return t.inCluster
	}
	plane := got(controlplane.Start(t.ctx, controlplane.Options{Dir: t.all.TempDir()}))
	t.all.Cleanup(func() { check(plane.Stop()) })
	sandlot := got(plane.Install(t.ctx, controlplane.SandlotOptions{BinDir: filepath.Dir(t.settings.program)}))
	c := &cluster{
		server: &server{clients: newClients(plane.Config(), t.connections)}, plane: plane,
		kube: got(kubernetes.NewForConfig(plane.Config())), etcdMetrics: sandlot.EtcdMetricsURL(),
	}
	for i := range sandlot.APIServers() {
		direct := got(sandlot.Direct(i, plane.Config()))
		c.measured = append(c.measured, newClients(direct, 1)[0].Discovery().RESTClient())
	}
	t.inCluster = c
	return c
}

// namespace makes the namespace of a pool.
func (c *cluster) namespace(ctx context.Context, p pool) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	got(c.kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}))
}

// makePool makes a namespace with a set, and waits until it is full.
func (c *cluster) makePool(ctx context.Context, p pool) {
	c.namespace(ctx, p)
	c.createSet(ctx, p)
}

// writes are what was written since the servers started.
func (c *cluster) writes(ctx context.Context) counts {
	w := c.counts(ctx)
	kube := counts{}
	scrape(ctx, c.kube.Discovery().RESTClient()).count(kube, others)
	for what, n := range kube.named(others) {
		w[others+what] = n
	}
	request := got(http.NewRequestWithContext(ctx, http.MethodGet, c.etcdMetrics, nil))
	answer := got(http.DefaultClient.Do(request))
	defer func() { _ = answer.Body.Close() }() // it has been read
	etcd := parse(answer.Body)
	// What our etcd counts, with what servers write for themselves meanwhile.
	w["etcd_puts"], w["etcd_txns"] = etcd.sum("etcd_mvcc_put_total"), etcd.sum("etcd_mvcc_txn_total")
	return w
}

// quiet returns what was written when there was no write for a while.
func (c *cluster) quiet(ctx context.Context) counts {
	last := c.writes(ctx)
	for since := time.Now(); time.Since(since) < quietFor; {
		check(sleep(ctx, quietFor/10))
		now := c.writes(ctx)
		if !maps.Equal(now.named(own), last.named(own)) || !maps.Equal(now.named(others), last.named(others)) {
			last, since = now, time.Now()
		}
	}
	return last
}

// settled is what goes before a round: the pool is full and writes have stopped.
func (c *cluster) settled(p pool) func(context.Context) {
	return func(ctx context.Context) {
		c.awaitStock(ctx, p)
		c.quiet(ctx)
	}
}

// aggregated compares claims with plain creates. A round of claims takes less than
// half of the pool, so it meets no refill unless it lasts for more than five seconds
// or pauses; the refill comes after it. A round of either begins when the pool is
// full and nothing else goes on.
func aggregated(count func(*settings) int) func(*stage, *result) {
	return func(t *stage, r *result) {
		c, n := t.cluster(), count(t.settings)
		p := pool{namespace: fmt.Sprintf("bench-c%d", r.Clients), size: n * 5 / 2}
		c.makePool(t.ctx, p)
		f := t.fixture(r, c.server, p)
		claims, plains := f.claimer.arm("claim", n, 1), f.plain.arm(n)
		claims.before, plains.before = c.settled(p), c.settled(p)
		f.compareClaims(t.rounds, []arm{claims, plains})
		r.set("pool", float64(p.size))
	}
}

// runFill measures how a pool is filled with sandboxes that are ready.
func runFill(t *stage, r *result) {
	c, p := t.cluster(), pool{namespace: "bench-fill", size: 1000}
	before, began := c.quiet(t.ctx), time.Now()
	c.makePool(t.ctx, p)
	took := time.Since(began)
	r.set("fill_s", took.Seconds())
	r.set("fill_per_s", float64(p.size)/took.Seconds())
	wrote := r.writes(c.quiet(t.ctx).minus(before), p.size, p)
	r.set("pod creates", wrote[others+"create pods"])
}

// writes counts what was written for one of n sandboxes or claims: the requests that write
// to our store, by what they do, and those to kube-apiserver, of all clients.
func (r *result) writes(all counts, n int, p pool) counts {
	each := all.times(1 / float64(n))
	r.set("pool", float64(p.size))
	r.set("etcd_puts", each["etcd_puts"])
	r.set("etcd_txns", each["etcd_txns"])
	r.set("own_writes", each.named(own).total())
	r.setAll("own", each.named(own))
	r.setAll("cluster", each.named(others))
	return each
}

// warmWrites counts what is written while an arm makes warmClaims claims, and after that. The
// pool is held, so that nothing is written for a sandbox that takes the place of another. One
// claim goes before.
func (c *cluster) warmWrites(t *stage, r *result, p pool, claims arm) counts {
	c.patchSet(t.ctx, p, map[string]any{"scaleStrategy": hold})
	claims.do(t.ctx, 0)
	before := c.quiet(t.ctx)
	got(claims.run(t.ctx, 1))
	wrote := r.writes(c.quiet(t.ctx).minus(before), warmClaims, p)
	r.set("transactions_per_claim", wrote[bindings])
	return wrote
}

// runWarmWrites counts what a claim of one warm sandbox writes, and what is
// written in its wake, without the sandbox that takes its place.
func runWarmWrites(t *stage, r *result) {
	c, p := t.cluster(), pool{namespace: "bench-writes", size: 1 + warmClaims}
	c.makePool(t.ctx, p)
	claimer := newClaimer(c.server, p)
	c.warmWrites(t, r, p, claimer.arm("claim", warmClaims, 1))
	claimer.verify(t.ctx)
}

// agentPath is where a resource of agent-sandbox is.
func agentPath(namespace, resource string) string {
	return "/apis/" + extensions.SchemeGroupVersion.String() + "/namespaces/" + namespace + "/" + resource
}

// makeAgentPool makes a namespace with a template and a pool in the words of agent-sandbox,
// and waits until it is full.
func (c *cluster) makeAgentPool(ctx context.Context, p pool) {
	c.namespace(ctx, p)
	for resource, manifest := range map[string]string{
		"sandboxtemplates": fmt.Sprintf(`"kind": "SandboxTemplate", "metadata": {"name": "bench"}, "spec": {"podTemplate": %s}`, podTemplate),
		"sandboxwarmpools": fmt.Sprintf(`"kind": "SandboxWarmPool", "metadata": {"name": %q}, "spec": {"replicas": %d, "sandboxTemplateRef": {"name": "bench"}}`,
			p.name(), p.size),
	} {
		body := fmt.Sprintf(`{"apiVersion": %q, %s}`, extensions.SchemeGroupVersion, manifest)
		check(c.raw(0).Post().AbsPath(agentPath(p.namespace, resource)).Body([]byte(body)).SetHeader("Content-Type", "application/json").Do(ctx).Error())
	}
	c.awaitStock(ctx, p)
}

// agentArm creates count claims a round in the words of agent-sandbox. A claim counts when its
// client has seen it Ready, with its sandbox: in the answer to the create, or, as watched, by a
// client that does not look at the answer but watches from its resourceVersion, as the Python
// SDK does. Such a client makes two requests.
func (c *claimer) agentArm(name string, count int, watched bool) arm {
	return c.armOf(name, count, func(ctx context.Context, client int) {
		claim := c.createAgent(ctx, client)
		if watched {
			claim = c.watchAgent(ctx, client, claim)
		}
		var given []string
		if name := claim.Status.Sandbox.Name; name != "" {
			given = append(given, name)
		}
		c.taken(claim.UID, given, agentReady(claim))
	})
}

// agentReady reports whether an SDK would hand the sandbox to its user.
func agentReady(c *extensions.SandboxClaim) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, "Ready") && c.Status.Sandbox.Name != "" && len(c.Status.Sandbox.PodIPs) > 0
}

func (c *claimer) createAgent(ctx context.Context, client int) *extensions.SandboxClaim {
	body := got(json.Marshal(map[string]any{
		"apiVersion": extensions.SchemeGroupVersion.String(), "kind": "SandboxClaim",
		"metadata": map[string]any{"name": newName("claim"), "labels": map[string]string{v1alpha1.AgentLabelCreatedBy: "python-client"}},
		"spec":     map[string]any{"warmPoolRef": map[string]string{"name": c.pool.name()}},
	}))
	answer := got(c.server.raw(client).Post().AbsPath(agentPath(c.pool.namespace, "sandboxclaims")).
		Body(body).SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").DoRaw(ctx))
	created := &extensions.SandboxClaim{}
	check(json.Unmarshal(answer, created))
	return created
}

// watchAgent watches one claim from its resourceVersion until it is Ready.
func (c *claimer) watchAgent(ctx context.Context, client int, created *extensions.SandboxClaim) *extensions.SandboxClaim {
	stream := got(c.server.raw(client).Get().AbsPath(agentPath(c.pool.namespace, "sandboxclaims")).
		Param("watch", "true").Param("fieldSelector", metav1.ObjectNameField+"="+created.Name).Param("resourceVersion", created.ResourceVersion).
		SetHeader("Accept", "application/json").Stream(ctx))
	defer func() { _ = stream.Close() }() // nothing more is read
	for events := json.NewDecoder(stream); ; {
		event := metav1.WatchEvent{}
		check(events.Decode(&event)) // io.EOF before it is Ready
		if event.Type == string(watch.Error) {
			check(fmt.Errorf("watching claim %s: %s", created.Name, event.Object.Raw))
		}
		claim := &extensions.SandboxClaim{}
		check(json.Unmarshal(event.Object.Raw, claim))
		if agentReady(claim) {
			return claim
		}
	}
}

// agentClaims compares claims in the words of agent-sandbox with claims in ours, of the same
// pool. Rounds are as those of aggregated.
func agentClaims(count func(*settings) int) func(*stage, *result) {
	return func(t *stage, r *result) {
		c, n := t.cluster(), count(t.settings)
		p := pool{namespace: fmt.Sprintf("bench-agents-c%d", r.Clients), size: n * 5 / 2}
		c.makeAgentPool(t.ctx, p)
		claimer := newClaimer(c.server, p)
		arms := []arm{claimer.agentArm("agent-sandbox", n, false), claimer.arm("ours", n, 1), claimer.agentArm("agent-sandbox watched", n, true)}
		for i := range arms {
			arms[i].before = c.settled(p)
		}
		all := t.compare(r.Case, r.Clients, t.rounds, arms...)
		claimer.verify(t.ctx)
		r.set("pool", float64(p.size))
		r.set("agent_claims", float64(claimer.claims))
		r.set("agent_failed", float64(claimer.failed))
		for i, name := range strings.Fields("agent own watched") {
			r.speed(name, all[i])
		}
		r.set("agent_p50_ratio", ratio(all[0], all[1], sample.p50))
		r.set("agent_rate_ratio", ratio(all[0], all[1], sample.rate))
		r.set("watched_p50_ratio", ratio(all[2], all[1], sample.p50))
	}
}

// runAgentWrites counts what a claim of one warm sandbox writes in the words of
// agent-sandbox, and what is written in its wake, without the sandbox that takes its place.
func runAgentWrites(t *stage, r *result) {
	c, p := t.cluster(), pool{namespace: "bench-agent-writes", size: 1 + warmClaims}
	c.makeAgentPool(t.ctx, p)
	claimer := newClaimer(c.server, p)
	wrote := c.warmWrites(t, r, p, claimer.agentArm("agent-sandbox", warmClaims, false))
	r.set("patch pods", wrote[others+"patch pods"])
	r.set("failed claims", float64(claimer.failed))
	claimer.verify(t.ctx)
}
