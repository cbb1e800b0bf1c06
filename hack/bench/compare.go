// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// transactions measures bare transactions that write what a claim writes: a new key, and one
// that must not have changed. No server can be faster than its store.
func transactions(count func(*settings) int) func(*stage, *result) {
	return func(t *stage, r *result) {
		// About as much as the server stores.
		claim, sandbox := strings.Repeat("c", 1800), strings.Repeat("s", 2900)
		n := count(t.settings)
		t.etcd(t.TempDir(), func(client *clientv3.Client) {
			const prefix, first = sandboxKeys + "bench/", "0000000"
			got(client.Put(t.ctx, prefix+first, sandbox))
			copyStored(t.ctx, client, t.operations(n), []string{prefix + first}, func(i int) []string {
				return []string{first, fmt.Sprintf("%07d", i)}
			})
			stock := got(client.Get(t.ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())).Kvs
			var next atomic.Int64
			all := t.compare(r.Case, r.Clients, t.rounds, arm{name: "transaction", count: n, do: func(ctx context.Context, _ int) {
				taken, name := stock[next.Add(1)-1], claimKeys+newName("bench/claim")
				sandboxKey := string(taken.Key)
				answer := got(client.Txn(ctx).
					If(clientv3.Compare(clientv3.ModRevision(name), "=", 0), clientv3.Compare(clientv3.ModRevision(sandboxKey), "=", taken.ModRevision)).
					Then(clientv3.OpPut(name, claim), clientv3.OpPut(sandboxKey, sandbox)).
					Else(clientv3.OpGet(name, clientv3.WithKeysOnly()), clientv3.OpGet(sandboxKey, clientv3.WithKeysOnly())).
					Commit())
				if !answer.Succeeded {
					check(fmt.Errorf("the transaction on %s was refused", sandboxKey))
				}
			}})
			r.speed("etcd", all[0])
		})
	}
}

// direct compares claims with plain creates.
func direct(count func(*settings) int) func(*stage, *result) {
	return func(t *stage, r *result) {
		n := count(t.settings)
		p := pool{namespace: "bench", size: 1 + t.operations(n)}
		f := t.fixture(r, t.filledServer([]pool{p}), p)
		f.compareClaims(t.rounds, []arm{f.claimer.arm("claim", n, 1), f.plain.arm(n)})
	}
}

// runBatch compares claims of 100 with claims of 1.
func runBatch(t *stage, r *result) {
	p := pool{namespace: "bench", size: 1 + batchSize*t.operations(t.batches()) + t.operations(t.few())}
	f := t.fixture(r, t.filledServer([]pool{p}), p)
	all := f.compareClaims(t.rounds, []arm{
		f.claimer.arm("claim of 100", t.batches(), batchSize), f.plain.arm(t.few()), f.claimer.arm("claim of 1", t.few(), 1),
	})
	r.set("single_p50_ms", all[2].p50())
	r.set("batch_ratio", ratio(all[0], all[2], sample.p50))
	r.set("sandboxes_per_s", batchSize*all[0].rate())
}

// smallPool is the other size of pool/100k.
const smallPool = 1000

// runPools compares a server with a large pool with one that has a small pool.
// They take turns; the one whose turn it is not has nothing to do.
func runPools(t *stage, r *result) {
	// The small pool must stay small, so all rounds together take no more than it holds, and
	// half as much.
	count := max(min(t.few(), smallPool*3/2/t.rounds), 1)
	bytes := bytesPerSandbox(t.pool)
	on := func(size int) *fixture {
		// On average over the rounds the pool has its nominal size.
		p := pool{namespace: "bench", size: size + t.operations(count)/2}
		return t.fixture(r, t.filledServer([]pool{p}), p)
	}
	large := on(t.pool)
	small := on(smallPool).claimer
	all := large.compareClaims(t.rounds, []arm{large.claimer.arm("large", count, 1), large.plain.arm(count), small.arm("small", count, 1)}, small)
	r.set("pool", float64(t.pool))
	r.set("small_pool", smallPool)
	r.set("small_pool_p50_ms", all[2].p50())
	r.set("pool_ratio", ratio(all[0], all[2], sample.p50))
	r.set("bytes_per_indexed_sandbox", bytes)
}

// noWaiters is a listener for stock that no claim waits for.
type noWaiters struct{}

func (noWaiters) Stocked(poolindex.Pool) {}

// bytesPerSandbox is what the index of n sandboxes adds to the sandboxes
// themselves, which are in memory anyway, in the watch cache.
func bytesPerSandbox(n int) float64 {
	sandboxes := make([]*v1alpha1.Sandbox, n)
	for i := range sandboxes {
		sandboxes[i] = indexedSandbox(i)
	}
	index := poolindex.New()
	feed := poolindex.NewFeed(index, noWaiters{}, time.Now)
	grown := heapGrown(sandboxes, func() {
		for _, sandbox := range sandboxes {
			feed.SandboxChanged(sandbox)
		}
	})
	if indexed := index.Available(poolindex.Pool{Namespace: "bench", Name: setName, UID: setName}); indexed != n {
		check(fmt.Errorf("the index holds %d of %d sandboxes", indexed, n))
	}
	return grown / float64(n)
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

// heapGrown is how many more bytes are reachable after do, with what is kept.
func heapGrown(kept any, do func()) float64 {
	reachable := func() float64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC() // what the first one found in pools
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc)
	}
	before := reachable()
	do()
	grown := reachable() - before
	runtime.KeepAlive(kept)
	return grown
}

const templateName = "template"

// runSets compares claims on the three sets of a template with claims on the one
// set of another, and measures what sandboxes of sets with a reference hold.
func runSets(t *stage, r *result) {
	operations := 1 + t.operations(t.few())
	large := paddedTemplate(32 << 10)
	one := pool{namespace: "bench-single", size: operations, template: templateName}
	inline := pool{namespace: "bench-inline", size: 1, pods: large}
	referring := pool{namespace: "bench-referring", size: 1, pods: large, template: templateName}
	pools := []pool{one, inline, referring}
	for _, set := range []string{"a", "b", "c"} {
		// Each could serve all claims but a third: they are taken from in turn.
		pools = append(pools, pool{namespace: "bench-three", size: operations/3 + 1, set: set, template: templateName})
	}
	s := t.filledServer(pools)
	stored := func(p pool) float64 { return float64(sizeOf(s.sandboxes(t.ctx, p, "")[0])) }
	r.set("template_bytes", float64(len(large)))
	r.set("bytes_per_stored_sandbox_inline", stored(inline))
	r.set("bytes_per_stored_sandbox_referring", stored(referring))
	r.set("bytes_per_stored_sandbox_of_small_template", stored(one))
	r.set("bytes_grown_with_template", stored(referring)-stored(one))
	three, single := t.fixture(r, s, pools[3]), newClaimer(s, one)
	all := three.compareClaims(t.rounds, []arm{
		three.claimer.arm("claim on three sets", t.few(), 1), three.plain.arm(t.few()), single.arm("claim on one set", t.few(), 1),
	}, single)
	r.set("single_set_p50_ms", all[2].p50())
	r.set("sets_ratio", ratio(all[0], all[2], sample.p50))
}

const (
	// agentRuntime is the runtime that takes the environment of claims, and
	// agentRuntimePort where it listens in each sandbox.
	agentRuntime     = "agent-runtime"
	agentRuntimePort = 49983
	// runtimeDelay is how long a runtime takes to answer.
	runtimeDelay = time.Millisecond
)

// runRuntimeOne compares a claim of one with envVars with one without, on sandboxes without a
// runtime.
func runRuntimeOne(t *stage, r *result) {
	bare := pool{namespace: "bench-bare", size: t.operations(t.few())}
	t.compareRuntimes(r, 1, t.few(), pool{namespace: "bench", size: 1 + t.operations(t.few())}, func(f *fixture) *claimer {
		return newClaimer(f.claimer.server, bare)
	}, bare)
}

// runRuntimeMany compares a claim of 100 with a claim of one, both with envVars.
func runRuntimeMany(t *stage, r *result) {
	size := 1 + t.operations(t.few()) + batchSize*t.operations(t.batches())
	t.compareRuntimes(r, batchSize, t.batches(), pool{namespace: "bench", size: size}, func(f *fixture) *claimer { return f.claimer })
}

// compareRuntimes compares count claims of so many sandboxes a round, with envVars, with
// claims of one by another. The sandboxes of the pool have an agent-runtime, which this
// process is: addresses in 127.0.0.0/8 are all this machine's.
func (t *stage) compareRuntimes(r *result, replicas, count int, p pool, other func(*fixture) *claimer, more ...pool) {
	var calls atomic.Int64
	agents := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if sleep(r.Context(), runtimeDelay) == nil {
			calls.Add(1)
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	check(agents.Listener.Close())
	agents.Listener = loopback{got(new(net.ListenConfig).Listen(t.ctx, "tcp4", net.JoinHostPort("0.0.0.0", strconv.Itoa(agentRuntimePort))))}
	agents.Start()
	t.Cleanup(agents.Close)
	p.runtime = true
	f := t.fixture(r, t.filledServer(append(more, p)), p)
	f.claimer.change = func(claim *v1alpha1.SandboxClaim) {
		claim.Spec.EnvVars = map[string]string{"SESSION": "b5d2", "ENDPOINT": "https://example.com/api", "MODE": "bench"}
	}
	before := calls.Load()
	all := f.compareClaims(t.rounds, []arm{
		f.claimer.arm("claim with envVars", count, replicas), f.plain.arm(t.few()), other(f).arm("claim of 1", t.few(), 1),
	})
	r.set("runtime_calls", float64(calls.Load()-before))
	r.set("other_p50_ms", all[2].p50())
	r.set("runtime_ratio", ratio(all[0], all[2], sample.p50))
	// Without a call there was nothing to compare.
	r.Goal = fmt.Sprintf("runtime_calls >= %d", t.rounds*count*replicas)
}

// loopback takes connections from this machine only.
type loopback struct{ net.Listener }

// Accept implements net.Listener.
func (l loopback) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if address, ok := conn.LocalAddr().(*net.TCPAddr); ok && address.IP.IsLoopback() {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// waits makes a claim wait for a sandbox of the pool, for longer than any run takes.
func waits(claim *v1alpha1.SandboxClaim) {
	claim.Spec.OnShortage = v1alpha1.ShortageWait
	claim.Spec.CreateOnNoStock = new(false)
	claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 24 * time.Hour}
}

// runWaiting compares the processor time of a server with claims that wait on an empty
// pool with that of the same server without.
func runWaiting(t *stage, r *result) {
	const claims = 1000
	// Creates are answered at once: whose call has ended waits as well.
	s, p := t.server(t.TempDir(), t.connections, "--sync-window", "1ms"), pool{namespace: "bench", size: 1}
	s.makeModel(t.ctx, p)
	c := newClaimer(s, p)
	c.change = waits
	c.create(t.ctx, 0, c.claim(1)) // the only sandbox
	watch := func(name string) arm {
		return c.armOf(name, 1, func(ctx context.Context, _ int) { check(sleep(ctx, 3*time.Second)) })
	}
	with, without := watch("waiting"), watch("idle")
	gather := arm{count: claims, do: func(ctx context.Context, client int) {
		if claim := c.create(ctx, client, c.claim(1)); claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming {
			check(fmt.Errorf("claim %s does not wait, it is %q", claim.Name, claim.Status.Phase))
		}
	}}
	with.before = func(ctx context.Context) {
		got(gather.run(ctx, manyClients))
		s.idle(ctx)
	}
	// All of the claims must still wait.
	with.after = func(ctx context.Context) {
		api := s.clients[0].AgentsV1alpha1().SandboxClaims(p.namespace)
		still := metav1.ListOptions{FieldSelector: "status.phase=" + string(v1alpha1.SandboxClaimPhaseClaiming)}
		if n := len(got(api.List(ctx, still)).Items); n != claims {
			check(fmt.Errorf("%d claims wait, not %d", n, claims))
		}
		check(api.DeleteCollection(ctx, metav1.DeleteOptions{}, still))
		s.idle(ctx)
	}
	all := t.compare(r.Case, r.Clients, t.rounds, with, without)
	r.set("waiting_claims", claims)
	r.set("waiting_cpu_ms_per_s", all[0].of(sample.cpuPerSecond))
	r.set("idle_cpu_ms_per_s", all[1].of(sample.cpuPerSecond))
	r.set("waiting_cpu_growth_ms_per_s", difference(all[0], all[1], sample.cpuPerSecond))
}

// runAnswers measures the time from a sandbox turning available to the answer of the
// create of a claim that waits for it.
func runAnswers(t *stage, r *result) {
	p := pool{namespace: "bench", size: 1}
	// No sandbox that the set makes becomes ready by itself.
	s := t.filledServer([]pool{p}, "--simulated-start-delay", "24h")
	f := t.fixture(r, s, p) // which claims the only available sandbox
	f.claimer.change = waits

	n, free := t.operations(t.few()), v1alpha1.LabelSandboxClaimed+"="+v1alpha1.ClaimedFalse
	s.patchSet(t.ctx, p, map[string]any{"replicas": n, "scaleStrategy": release})
	await(t.ctx, "the set has made its sandboxes", func(ctx context.Context) bool { return len(s.sandboxes(ctx, p, free)) == n })
	starting := s.sandboxes(t.ctx, p, free)
	s.patchSet(t.ctx, p, map[string]any{"scaleStrategy": hold}) // what is claimed is not replaced
	s.idle(t.ctx)

	// answer is that of the create that is under way.
	var answer chan func() *v1alpha1.SandboxClaim
	claims := f.claimer.armOf("answer", t.few(), func(ctx context.Context, client int) {
		if len(starting) == 0 {
			check(errors.New("no sandboxes are left"))
		}
		// As its controller does.
		patch := got(json.Marshal(map[string]any{"status": testutil.ReadyStatus(0, time.Now())}))
		got(s.client(client).AgentsV1alpha1().Sandboxes(p.namespace).Patch(ctx, starting[0].Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"))
		starting = starting[1:]
		f.claimer.take((<-answer)(), 1)
	})
	// The claim is created before, and waits.
	claims.ready = func(ctx context.Context, client int) {
		claim, created := f.claimer.claim(1), make(chan func() *v1alpha1.SandboxClaim, 1)
		answer = created
		go func() {
			var made *v1alpha1.SandboxClaim
			err := caught(func() { made = f.claimer.create(ctx, client, claim) })
			created <- func() *v1alpha1.SandboxClaim { return got(made, err) }
		}()
		for {
			_, err := s.client(client).AgentsV1alpha1().SandboxClaims(p.namespace).Get(ctx, claim.Name, metav1.GetOptions{})
			if err == nil {
				return
			}
			if !apierrors.IsNotFound(err) || len(answer) > 0 {
				check(fmt.Errorf("claim %s did not wait: %w", claim.Name, err))
			}
			check(sleep(ctx, time.Millisecond))
		}
	}
	f.compareClaims(t.rounds, []arm{claims, f.plain.arm(t.few())})
	r.set("answer_ratio", r.value("claim_p99_ms")/r.value("plain_p50_ms"))
}
