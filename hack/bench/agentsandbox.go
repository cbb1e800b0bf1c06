// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Claims in the words of agent-sandbox beside claims in ours, of the same pool.
const (
	agentOne    = "agent-sandbox/c1"
	agentMany   = "agent-sandbox/c64"
	agentWrites = "writes/agent-sandbox-claim"

	// agentTemplate is the name of the template that their pools are of.
	agentTemplate = "bench"
	// agentRatio is how much more than one of ours a claim in their words may cost.
	agentRatio = 1.15
)

// agentFigures compare the two. A claim counts when its client has seen it Ready, with its
// sandbox: ours and theirs in the answer to the create, and, as watched, theirs by a client
// that does not look at the answer but watches from its resourceVersion, as the Python SDK
// does. Such a client makes two requests.
type agentFigures struct {
	AgentClaims int `json:"agent_claims"`
	AgentFailed int `json:"agent_failed"`

	AgentPerS number `json:"agent_per_s"`
	AgentP50  number `json:"agent_p50_ms"`
	AgentP99  number `json:"agent_p99_ms"`
	OwnPerS   number `json:"own_per_s"`
	OwnP50    number `json:"own_p50_ms"`
	OwnP99    number `json:"own_p99_ms"`

	WatchedPerS number `json:"watched_per_s"`
	WatchedP50  number `json:"watched_p50_ms"`
	WatchedP99  number `json:"watched_p99_ms"`

	AgentP50Ratio   number `json:"agent_p50_ratio"`
	AgentRateRatio  number `json:"agent_rate_ratio"`
	WatchedP50Ratio number `json:"watched_p50_ratio"`
}

// agentClaim is what a client of agent-sandbox reads of a claim.
type agentClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		WarmPoolRef struct {
			Name string `json:"name"`
		} `json:"warmPoolRef"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
		Sandbox    struct {
			Name   string   `json:"name"`
			PodIPs []string `json:"podIPs"`
		} `json:"sandbox"`
	} `json:"status,omitzero"`
}

// ready reports whether an SDK would hand the sandbox to its user.
func (c *agentClaim) ready() bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, "Ready") && c.Status.Sandbox.Name != "" && len(c.Status.Sandbox.PodIPs) > 0
}

// agentPath is where a resource of a namespace is.
func agentPath(namespace, resource string) string {
	return "/apis/" + v1alpha1.ExtensionsGroup + "/v1beta1/namespaces/" + namespace + "/" + resource
}

func (s *server) raw(client int) rest.Interface { return s.client(client).Discovery().RESTClient() }

// makeAgentPool makes a namespace with a template and a pool in the words of agent-sandbox,
// and waits until it is full.
func (c *cluster) makeAgentPool(ctx context.Context, p pool) error {
	_, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for resource, manifest := range map[string]string{
		"sandboxtemplates": fmt.Sprintf(`{"kind": "SandboxTemplate", "metadata": {"name": %q}, "spec": {"podTemplate": %s}}`, agentTemplate, podTemplate),
		"sandboxwarmpools": fmt.Sprintf(`{"kind": "SandboxWarmPool", "metadata": {"name": %q}, "spec": {"replicas": %d, "sandboxTemplateRef": {"name": %q}}}`,
			p.name(), p.size, agentTemplate),
	} {
		body := []byte(fmt.Sprintf(`{"apiVersion": %q, `, v1alpha1.ExtensionsGroup+"/v1beta1") + manifest[1:])
		if err := c.raw(0).Post().AbsPath(agentPath(p.namespace, resource)).Body(body).SetHeader("Content-Type", "application/json").Do(ctx).Error(); err != nil {
			return fmt.Errorf("making %s: %w", resource, err)
		}
	}
	return c.awaitStock(ctx, p)
}

// agentArm creates count claims a round in the words of agent-sandbox.
func (c *claimer) agentArm(name string, count int, watched bool) arm {
	return arm{name: name, count: count, reset: c.reset, cpu: c.server.cpu, do: func(ctx context.Context, client int) error {
		claim, err := c.createAgent(ctx, client)
		if err == nil && watched {
			claim, err = c.watchAgent(ctx, client, claim.Name, claim.ResourceVersion)
		}
		if err != nil {
			return err
		}
		c.takeAgent(claim)
		return nil
	}}
}

func (c *claimer) createAgent(ctx context.Context, client int) (*agentClaim, error) {
	claim := &agentClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.ExtensionsGroup + "/v1beta1", Kind: "SandboxClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: newName("claim"), Labels: map[string]string{v1alpha1.AgentLabelCreatedBy: "python-client"}},
	}
	claim.Spec.WarmPoolRef.Name = c.pool.name()
	body, err := json.Marshal(claim)
	if err != nil {
		return nil, err
	}
	answer, err := c.server.raw(client).Post().AbsPath(agentPath(c.pool.namespace, "sandboxclaims")).
		Body(body).SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("claiming in the words of agent-sandbox: %w", err)
	}
	created := &agentClaim{}
	return created, json.Unmarshal(answer, created)
}

// watchAgent watches one claim from a resourceVersion until it is Ready.
func (c *claimer) watchAgent(ctx context.Context, client int, name, resourceVersion string) (*agentClaim, error) {
	stream, err := c.server.raw(client).Get().AbsPath(agentPath(c.pool.namespace, "sandboxclaims")).
		Param("watch", "true").Param("fieldSelector", metav1.ObjectNameField+"="+name).Param("resourceVersion", resourceVersion).
		SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("watching claim %s: %w", name, err)
	}
	defer func() { _ = stream.Close() }() // nothing more is read
	events := json.NewDecoder(stream)
	for {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := events.Decode(&event); err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the watch of claim %s ended before it was Ready", name)
			}
			return nil, err
		}
		if event.Type == "ERROR" {
			return nil, fmt.Errorf("watching claim %s: %s", name, event.Object)
		}
		claim := &agentClaim{}
		if err := json.Unmarshal(event.Object, claim); err != nil {
			return nil, err
		}
		if claim.ready() {
			return claim, nil
		}
	}
}

// takeAgent judges a claim as its client has seen it at last.
func (c *claimer) takeAgent(claim *agentClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims++
	name := claim.Status.Sandbox.Name
	other, taken := c.owners[name]
	if taken {
		logf("sandbox %s is bound to claims %s and %s", name, other, claim.UID)
	}
	if taken || !claim.ready() {
		c.failed++
	}
	if name != "" {
		c.owners[name] = string(claim.UID)
	}
}

// agents compares claims in both dialects. Rounds are as those of aggregated.
func (b *bench) agents(name string, clients, count int, goalOf func(*result) goal) func(context.Context, *cluster) (*result, error) {
	return func(ctx context.Context, c *cluster) (*result, error) {
		p := pool{namespace: fmt.Sprintf("bench-agents-c%d", clients), size: count * 5 / 2}
		if err := c.makeAgentPool(ctx, p); err != nil {
			return nil, err
		}
		claimer := newClaimer(c.server, p)
		arms := []arm{
			claimer.agentArm("agent-sandbox", count, false),
			claimer.arm("ours", count, 1),
			claimer.agentArm("agent-sandbox watched", count, true),
		}
		for i := range arms {
			arms[i].before = func(ctx context.Context) error { return c.settle(ctx, p) }
			arms[i].profile = profileOf(c.server, b.profiles, name+"-"+arms[i].name)
		}
		all, err := compare(ctx, name, clients, b.rounds, arms)
		if err != nil {
			return nil, err
		}
		if err := claimer.verify(ctx); err != nil {
			return nil, err
		}
		theirs, ours, watched := all[0], all[1], all[2]
		r := &result{Case: name, Clients: clients, Pool: p.size, agentFigures: &agentFigures{
			AgentClaims: claimer.claims, AgentFailed: claimer.failed,
			AgentPerS: number(theirs.rate()), AgentP50: number(theirs.p50()), AgentP99: number(theirs.p99()),
			OwnPerS: number(ours.rate()), OwnP50: number(ours.p50()), OwnP99: number(ours.p99()),
			WatchedPerS: number(watched.rate()), WatchedP50: number(watched.p50()), WatchedP99: number(watched.p99()),
			AgentP50Ratio:   number(ratio(theirs, ours, sample.p50)),
			AgentRateRatio:  number(ratio(theirs, ours, sample.rate)),
			WatchedP50Ratio: number(ratio(watched, ours, sample.p50)),
		}}
		r.judge(goalOf(r), atMost("agent_failed", number(r.AgentFailed), 0))
		return r, nil
	}
}

func atMostAgentP50(r *result) goal {
	return atMost("agent_p50_ratio", r.AgentP50Ratio, agentRatio)
}

func atLeastAgentRate(r *result) goal {
	return atLeast("agent_rate_ratio", r.AgentRateRatio, 0.87) // 1 / agentRatio
}

// runAgentWrites counts what a claim of one warm sandbox writes in the words of
// agent-sandbox, and what is written in its wake, without the sandbox that takes its place.
func (b *bench) runAgentWrites(ctx context.Context, c *cluster) (*result, error) {
	p := pool{namespace: "bench-agent-writes", size: 1 + warmClaims}
	if err := c.makeAgentPool(ctx, p); err != nil {
		return nil, err
	}
	if err := c.patchSet(ctx, p, map[string]any{"scaleStrategy": hold}); err != nil {
		return nil, err
	}
	claimer := newClaimer(c.server, p)
	if err := claimer.agentArm("", 1, false).do(ctx, 0); err != nil {
		return nil, err
	}
	r, err := c.warmWrites(ctx, agentWrites, p, claimer.agentArm("agent-sandbox", warmClaims, false))
	if err != nil {
		return nil, err
	}
	r.judge(atMost("transactions_per_claim", r.Transactions, 1), atMost("patch pods", number(r.Cluster["patch pods"]), 1),
		atMost("failed claims", number(claimer.failed), 0))
	return r, claimer.verify(ctx)
}

// etcdCounts are the puts and the transactions of Sandlot's etcd since it started.
func (c *cluster) etcdCounts(ctx context.Context) (puts, txns float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.etcdMetrics, nil)
	if err != nil {
		return 0, 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the metrics of etcd: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // it has been read
	families, err := parseMetrics(answer.Body)
	if err != nil {
		return 0, 0, err
	}
	for _, metric := range families["etcd_mvcc_put_total"].GetMetric() {
		puts += metric.GetCounter().GetValue()
	}
	for _, metric := range families["etcd_mvcc_txn_total"].GetMetric() {
		txns += metric.GetCounter().GetValue()
	}
	return puts, txns, nil
}
