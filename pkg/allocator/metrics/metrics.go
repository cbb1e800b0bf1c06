// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Values of the label outcome: what became of the create of a claim.
const (
	OutcomeBound       = "bound"         // the answer has every sandbox
	OutcomeWaiting     = "waiting"       // the answer says Claiming; the work continues in the background
	OutcomeTimedOut    = "timed_out"     // claimTimeout came before the answer
	OutcomeDeleted     = "deleted"       // the claim was deleted before the answer
	OutcomeShortage    = "shortage"      // onShortage Fail and too little stock
	OutcomeSetNotFound = "set_not_found" // onShortage Fail and no set
	OutcomeTooMany     = "too_many"      // it would have to wait, and too many of its namespace do
	OutcomeExists      = "exists"        // the name is taken
	OutcomeRefused     = "refused"       // admission of sandboxes made for it, such as a quota, or what it adds to them
	OutcomeTooLarge    = "too_large"     // it does not fit into one transaction
	OutcomeUnknown     = "unknown"       // etcd did not say
	OutcomeCanceled    = "canceled"      // the caller left, or its time was up
	OutcomeError       = "error"
)

var outcomes = []string{
	OutcomeBound, OutcomeWaiting, OutcomeTimedOut, OutcomeDeleted, OutcomeShortage, OutcomeSetNotFound,
	OutcomeTooMany, OutcomeExists, OutcomeRefused, OutcomeTooLarge, OutcomeUnknown, OutcomeCanceled, OutcomeError,
}

// Values of the label result of transactions, of ends of claims, of resizes, and of
// what was found out about unknown outcomes.
const (
	resultCommitted = "committed"
	resultConflict  = "conflict"
	resultTooLarge  = "too_large"
	resultUnknown   = "unknown"
	resultError     = "error"

	resultCompleted = "completed"
	resultTimedOut  = "timed_out"
	resultDeleted   = "deleted"
	resultRejected  = "rejected" // it adds what its template does not take

	resultOK        = "ok"
	resultSucceeded = "succeeded"
	resultFailed    = "failed"
	resultReleased  = "let_go" // it failed, or was not ready in time

	resultStored     = "stored"
	resultNotStored  = "not_stored"
	resultUnresolved = "unresolved"
)

const (
	movedClaim   = "claim"
	movedSandbox = "sandbox"

	sourcePool  = "pool"
	sourceFresh = "fresh"

	namespace = "sandlot"
)

// fromMillisecond reaches from 1 ms, below which no transaction is, to 60 s,
// where kube-apiserver cuts proxied requests.
var fromMillisecond = []float64{
	.001, .0015, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .075, .1, .15, .2, .3, .5, .75, 1, 2, 5, 10, 20, 30, 60,
}

// The metrics are the process's, as are those of Kubernetes' own parts.
var (
	claimDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace:      namespace,
		Name:           "claim_duration_seconds",
		Help:           "Time that the create of a claim spent on binding, after admission, including waiting for sandboxes, by outcome.",
		Buckets:        fromMillisecond,
		StabilityLevel: metrics.ALPHA,
	}, []string{"outcome"})

	claimCompletion = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace:      namespace,
		Name:           "claim_completion_duration_seconds",
		Help:           "Time from the start to the end of claims that their first transaction did not complete, by how they ended.",
		Buckets:        []float64{.01, .025, .05, .1, .25, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600},
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	claimReplicas = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace:      namespace,
		Name:           "claim_replicas",
		Help:           "How many sandboxes the created claims asked for.",
		Buckets:        []float64{1, 2, 5, 10, 20, 50, 100, 127, 200, 500, 1000, 2000, 5000, 10000},
		StabilityLevel: metrics.ALPHA,
	})

	sandboxesBound = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      namespace,
		Name:           "sandboxes_bound_total",
		Help:           "Sandboxes bound to claims, by whether they came from a pool or were made for the claim.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"source"})

	claimResizes = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      namespace,
		Name:           "claim_resizes_total",
		Help:           "Sandboxes that claims had resized or otherwise changed in place, by how it went.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	runtimeSetups = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace:      namespace,
		Name:           "runtime_setup_duration_seconds",
		Help:           "Time that it took to set up the agent-runtime of a sandbox for a claim, mounts and retries with it, by how it went.",
		Buckets:        fromMillisecond,
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	transactionDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace:      namespace,
		Name:           "transaction_duration_seconds",
		Help:           "Time that etcd took for a transaction of claims and sandboxes, by how it went.",
		Buckets:        []float64{.0005, .001, .0015, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .1, .2, .5, 1, 2, 5, 10},
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	transactionConflicts = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      namespace,
		Name:           "transaction_conflicts_total",
		Help:           "Objects that had moved when a transaction was refused, by their kind.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"moved"})

	unknownOutcomes = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      namespace,
		Name:           "unknown_outcomes_total",
		Help:           "Creates of claims in which etcd did not answer, by what was found out afterwards.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	poolReads = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      namespace,
		Name:           "pool_reads_total",
		Help:           "Reads of a pool past the index, before a claim fails for shortage or starts sandboxes cold.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	indexLag = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace:      namespace,
		Name:           "pool_index_lag_seconds",
		Help:           "Time until the pool index heard of a transaction of this server, measured on one at a time.",
		Buckets:        []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60},
		StabilityLevel: metrics.ALPHA,
	})

	Register = sync.OnceFunc(func() {
		legacyregistry.MustRegister(claimDuration, claimCompletion, claimReplicas, sandboxesBound, claimResizes, runtimeSetups,
			transactionDuration, transactionConflicts, unknownOutcomes, poolReads, indexLag)
		legacyregistry.CustomMustRegister(&live)
		registerPoolMetrics()
		registerAgentMetrics()
		// A rate needs a 0 to begin with.
		for _, outcome := range outcomes {
			claimDuration.WithLabelValues(outcome)
		}
		for _, result := range []string{resultCompleted, resultTimedOut, resultRejected, resultDeleted} {
			claimCompletion.WithLabelValues(result)
		}
		for _, result := range []string{resultCommitted, resultConflict, resultTooLarge, resultUnknown, resultError} {
			transactionDuration.WithLabelValues(result)
		}
		for _, result := range []string{resultOK, resultFailed} {
			runtimeSetups.WithLabelValues(result)
		}
		addZero(transactionConflicts, movedClaim, movedSandbox)
		addZero(sandboxesBound, sourcePool, sourceFresh)
		addZero(claimResizes, resultSucceeded, resultFailed, resultReleased)
		addZero(unknownOutcomes, resultStored, resultNotStored, resultUnresolved)
		addZero(poolReads, resultRead, resultError)
	})
)

const resultRead = "read"

func addZero(counter *metrics.CounterVec, values ...string) {
	for value := range slices.Values(values) {
		counter.WithLabelValues(value).Add(0)
	}
}
