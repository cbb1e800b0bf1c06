// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
)

// number is printed with four digits or all before the point: more are noise.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	value := float64(n)
	if value == 0 || math.IsNaN(value) || math.IsInf(value, 0) {
		return []byte("0"), nil
	}
	scale := math.Pow(10, max(0, 3-math.Floor(math.Log10(math.Abs(value)))))
	return json.Marshal(math.Round(value*scale) / scale)
}

// claimFigures are those of claims beside plain creates.
type claimFigures struct {
	// Claims and Failed count over all rounds. A claim fails if it is not Completed
	// with exactly the sandboxes that it asked for, each of them its own in the
	// store as well.
	Claims int `json:"claims"`
	Failed int `json:"failed"`

	ClaimsPerS number `json:"claims_per_s"`
	ClaimP50   number `json:"claim_p50_ms"`
	ClaimP99   number `json:"claim_p99_ms"`
	PlainPerS  number `json:"plain_per_s"`
	PlainP50   number `json:"plain_p50_ms"`
	PlainP99   number `json:"plain_p99_ms"`
	P50Ratio   number `json:"p50_ratio"`
	RateRatio  number `json:"rate_ratio"`

	// What one costs the server.
	ClaimCPU number `json:"claim_cpu_ms"`
	PlainCPU number `json:"plain_cpu_ms"`

	ClaimBytes int `json:"claim_bytes"`
	PlainBytes int `json:"plain_bytes"`
}

// batchFigures compare one large claim with one claim of one sandbox.
type batchFigures struct {
	SingleP50     number `json:"single_p50_ms"`
	BatchRatio    number `json:"batch_ratio"`
	SandboxesPerS number `json:"sandboxes_per_s"`
}

// poolFigures compare a large pool with a small one.
type poolFigures struct {
	SmallPool       int    `json:"small_pool"`
	SmallPoolP50    number `json:"small_pool_p50_ms"`
	PoolRatio       number `json:"pool_ratio"`
	BytesPerSandbox number `json:"bytes_per_indexed_sandbox"`
}

// setFigures compare claims on the three sets of one template with claims on the
// one set of another, and sandboxes that refer to a large pod template with those
// that hold it.
type setFigures struct {
	SingleSetP50 number `json:"single_set_p50_ms"`
	SetsRatio    number `json:"sets_ratio"`
	// TemplateBytes is the size of the large pod template, and what follows that of a
	// sandbox as the server answers it.
	TemplateBytes     int `json:"template_bytes"`
	BytesInline       int `json:"bytes_per_stored_sandbox_inline"`
	BytesReferring    int `json:"bytes_per_stored_sandbox_referring"`
	BytesOfSmall      int `json:"bytes_per_stored_sandbox_of_small_template"`
	BytesForReference int `json:"bytes_grown_with_template"`
}

// fillFigures compare the fill of a set that refers to a template, with a patch, with
// that of a set with a pod template of its own.
type fillFigures struct {
	Filled        int    `json:"sandboxes_per_fill"`
	ReferringPerS number `json:"referring_fill_per_s"`
	InlinePerS    number `json:"inline_fill_per_s"`
	FillRatio     number `json:"fill_ratio"`
	// What a fill costs the server for one sandbox.
	ReferringCPU number `json:"referring_cpu_ms"`
	InlineCPU    number `json:"inline_cpu_ms"`
	// Patches counts the strategic merge patches that the server has applied since
	// the sets were made.
	Patches number `json:"patches_while_filling"`
	// CacheHit is the time to find a patched pod template again.
	CacheHit number `json:"cache_hit_ns"`
}

// refillFigures are the price of a refill.
type refillFigures struct {
	// BesideP99 is that of claims that come while a refill is at work, WithoutP99 that
	// of as many on a pool that is not refilled, and P99Ratio the one by the other.
	BesideP99  number `json:"beside_refill_p99_ms"`
	WithoutP99 number `json:"without_refill_p99_ms"`
	P99Ratio   number `json:"p99_ratio"`
	// BesidePerS is how many sandboxes the refill made beside those claims, AlonePerS
	// how many when claims had stopped.
	BesidePerS number `json:"refill_beside_claims_per_s"`
	AlonePerS  number `json:"refill_alone_per_s"`
	// What a sandbox costs when refill runs alone, and the requests that it takes.
	MSPerClaim     number `json:"refill_ms_per_claim"`
	CPUMSPerClaim  number `json:"refill_cpu_ms_per_claim"`
	WritesPerClaim number `json:"refill_writes_per_claim"`
}

// waitingFigures are what claims that wait on an empty pool cost the server: its
// processor time, in milliseconds a second, with them and without. Growth is the median
// over the rounds of the difference.
type waitingFigures struct {
	Waiting int    `json:"waiting_claims"`
	With    number `json:"waiting_cpu_ms_per_s"`
	Without number `json:"idle_cpu_ms_per_s"`
	Growth  number `json:"waiting_cpu_growth_ms_per_s"`
}

// answerFigures are about claims that wait for a sandbox. The p50 and p99 of claims are
// then from the write that makes one available to the answer of the create.
type answerFigures struct {
	// AnswerRatio is the p99 by the p50 of plain creates.
	AnswerRatio number `json:"answer_ratio"`
}

// runtimeFigures compare claims with envVars, which the runtimes of sandboxes have to be
// given, with claims of one sandbox: without any, or in the case of 100 with them too.
type runtimeFigures struct {
	Calls        int    `json:"runtime_calls"`
	OtherP50     number `json:"other_p50_ms"`
	RuntimeRatio number `json:"runtime_ratio"`
}

// writeFigures are what is written for one sandbox or one claim.
type writeFigures struct {
	FillS    number `json:"fill_s,omitempty"`
	FillPerS number `json:"fill_per_s,omitempty"`
	// Transactions are those that bind claims.
	Transactions number `json:"transactions_per_claim,omitempty"`
	// EtcdPuts and EtcdTxns are what our etcd counts, with what servers write for
	// themselves meanwhile.
	EtcdPuts number `json:"etcd_puts"`
	EtcdTxns number `json:"etcd_txns"`
	// Own are the requests that write to our store, by what they do, and Cluster
	// those to kube-apiserver, whoever makes them. OwnWrites sums up the former.
	OwnWrites number  `json:"own_writes"`
	Own       tallies `json:"own"`
	Cluster   tallies `json:"cluster"`
}

// etcdFigures are those of bare transactions.
type etcdFigures struct {
	PerS number `json:"etcd_per_s"`
	P50  number `json:"etcd_p50_ms"`
	P99  number `json:"etcd_p99_ms"`
}

// result is a line of the report.
type result struct {
	Case    string `json:"case"`
	Clients int    `json:"clients"`
	// Pool is the size of the pool, where it says something.
	Pool int `json:"pool,omitempty"`
	*claimFigures
	*batchFigures
	*poolFigures
	*startFigures
	*memoryFigures
	*setFigures
	*refillFigures
	*fillFigures
	*agentFigures
	*waitingFigures
	*answerFigures
	*runtimeFigures
	*etcdFigures
	*writeFigures
	*routesFigures
	*routeFigures
	*createFigures
	// Goal is what is to be reached, and OK whether it is, without any failed claim.
	Goal string `json:"goal,omitempty"`
	OK   *bool  `json:"ok,omitempty"`
}

// goal is a limit of one figure.
type goal struct {
	name  string
	value number
	least bool // the limit is the least value, not the greatest
	limit float64
}

func atMost(name string, value number, limit float64) goal {
	return goal{name: name, value: value, limit: limit}
}

func atLeast(name string, value number, limit float64) goal {
	return goal{name: name, value: value, least: true, limit: limit}
}

func (g goal) String() string {
	if g.least {
		return fmt.Sprintf("%s >= %g", g.name, g.limit)
	}
	return fmt.Sprintf("%s <= %g", g.name, g.limit)
}

// ok is false for what is not a number.
func (g goal) ok() bool {
	if g.least {
		return float64(g.value) >= g.limit
	}
	return float64(g.value) <= g.limit
}

// judge says in the line what the goals are and whether they are reached.
func (r *result) judge(goals ...goal) {
	ok := r.claimFigures == nil || r.Failed == 0
	var texts []string
	for _, g := range goals {
		texts = append(texts, g.String())
		ok = ok && g.ok()
	}
	r.Goal, r.OK = strings.Join(texts, ", "), &ok
}

// print writes the line.
func (r *result) print(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false) // goals have < and >
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("%s: %w", r.Case, err)
	}
	return nil
}
