// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

const (
	manyClients = 64
	batchSize   = 100
)

// benchCase is a case, which has data, servers and pools of its own, unless it is one of a
// cluster: those share a control plane.
type benchCase struct {
	name    string
	clients int
	// goals are limits of figures, as they are printed. docs/performance.md has them all.
	goals   string
	cluster bool
	run     func(*stage, *result)
}

// cases are in the order in which they run.
var cases = []benchCase{
	{name: "etcd/txn/c1", clients: 1, run: transactions((*settings).few)},
	{name: "etcd/txn/c64", clients: manyClients, run: transactions(func(o *settings) int { return 2 * o.count })},
	{name: "direct/c1", clients: 1, goals: "p50_ratio <= 1.3", run: direct((*settings).few)},
	{name: "direct/c64", clients: manyClients, goals: "rate_ratio >= 0.8", run: direct(func(o *settings) int { return o.count })},
	{name: "batch/100", clients: 1, goals: "batch_ratio <= 10", run: runBatch},
	// Without sandboxes made beside the claims there was nothing that the p99 could suffer from.
	{name: "direct/c64+refill", clients: manyClients, goals: "rate_ratio >= 0.6, p99_ratio <= 2, refill_beside_claims_per_s >= 1", run: runRefill},
	{name: "pool/100k", clients: 1, goals: "pool_ratio <= 1.3, bytes_per_indexed_sandbox <= 1024", run: runPools},
	{name: "start/100k", clients: 1, goals: "start_ready_s <= 5, start_pool_s <= 5", run: runStarts},
	{name: "memory/1k", clients: 1, run: memory(1_000)},
	{name: "memory/10k", clients: 1, run: memory(10_000)},
	{name: "memory/100k", clients: 1, run: memory(100_000)},
	// Names and addresses differ in length.
	{name: "sets/3", clients: 1, goals: "sets_ratio <= 1.2, bytes_grown_with_template <= 64", run: runSets},
	{name: "fill/ref", clients: 1, goals: "fill_ratio >= 0.95, patches_while_filling <= 0, cache_hit_ns <= 2000", run: runFills},
	// An idle server takes 25 to 45 ms a second, so 20 is what one cannot tell from none.
	{name: "waiting/1000", clients: 1, goals: "waiting_cpu_growth_ms_per_s <= 20", run: runWaiting},
	{name: "waiting/answer", clients: 1, goals: "answer_ratio <= 20", run: runAnswers},
	{name: "runtime/c1", clients: 1, goals: "runtime_ratio <= 2", run: runRuntimeOne},
	{name: "runtime/100", clients: 1, goals: "runtime_ratio <= 3", run: runRuntimeMany},

	{name: "gateway/routes", cluster: true, clients: 1, goals: "routes_mib <= 100", run: func(t *stage, r *result) { measureRoutes(t, r, 100_000) }},
	{name: "fill/1000", cluster: true, clients: 1, goals: "own_writes <= 4, pod creates <= 1.001", run: runFill},
	{name: "aggregated/c1", cluster: true, clients: 1, goals: "p50_ratio <= 1.3", run: aggregated((*settings).few)},
	{name: "aggregated/c64", cluster: true, clients: manyClients, goals: "rate_ratio >= 0.65", run: aggregated((*settings).burst)},
	{name: "writes/warm-claim", cluster: true, clients: 1, goals: "transactions_per_claim <= 1", run: runWarmWrites},
	{name: "agent-sandbox/c1", cluster: true, clients: 1, goals: "agent_p50_ratio <= 1.15, agent_failed <= 0", run: agentClaims((*settings).few)},
	{name: "agent-sandbox/c64", cluster: true, clients: manyClients, goals: "agent_rate_ratio >= 0.87, agent_failed <= 0", run: agentClaims((*settings).burst)},
	{name: "writes/agent-sandbox-claim", cluster: true, clients: 1, goals: "transactions_per_claim <= 1, patch pods <= 1, failed claims <= 0", run: runAgentWrites},
	// At a lower rate than is offered the times would be those of a queue.
	{name: "gateway/route", cluster: true, clients: manyClients, goals: "routed_added_ms <= 1, routed_rate_ratio >= 0.5, routed_paced_per_s >= 1900", run: runRoute},
	{name: "gateway/create", cluster: true, clients: 1, goals: "create_p50_ratio <= 1.2, creates_failed <= 0", run: creates((*settings).few)},
	{name: "gateway/create-c64", cluster: true, clients: manyClients, goals: "creates_failed <= 0", run: creates((*settings).burst)},
}

func caseNames(cluster bool) (names []string) {
	for _, c := range cases {
		if c.cluster == cluster {
			names = append(names, c.name)
		}
	}
	return names
}

// few is how many operations a round has where one client waits for each.
func (o *settings) few() int { return max(o.count/10, 1) }

// batches is how many claims of batchSize a round has.
func (o *settings) batches() int { return max(o.count/100, 1) }

// burst is how many claims 64 clients make a round in a cluster: a pool of pods can hold so
// many on one machine.
func (o *settings) burst() int { return max(o.count/4, 1) }

// operations is how many an arm has in all its rounds.
func (o *settings) operations(count int) int { return warmUp(count) + o.rounds*count }
