// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// The metrics of claims that agent-sandbox has, under its names, labels and buckets:
// autoscalers and performance gates go by them. They are counted after the transaction
// that they count, by the server that wrote it, so that sums over servers are right.
// Templates and pools have places as in poolmetrics.go.

const (
	agentMetrics = "agent_sandbox"
	// noWarmPool is in the label warmpool_name of what was taken from no pool.
	noWarmPool = "none"

	podReady    = "ready"
	podNotReady = "not_ready"
)

var (
	startupLabels  = []string{"launch_type", "sandbox_template"}
	startupBuckets = []float64{100, 250, 500, 750, 1000, 1250, 1500, 2000, 2500, 5000, 10000, 30000, 60000, 120000, 240000}

	claimStartup           = startupHistogram("claim_startup_latency_ms", "an admission webhook saw it first, for claims that say when")
	claimControllerStartup = startupHistogram("claim_controller_startup_latency_ms", "the server saw it first")
	clientClaimStartup     = startupHistogram("client_claim_startup_latency_ms", "its client asked for it first, for claims that say when")

	agentCreation = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: agentMetrics,
		Name:      "creation_latency_ms",
		Help: "Milliseconds from the creation of a sandbox until it was ready, to the second, observed when its claim of agent-sandbox becomes Ready first. " +
			"Templates beyond the first 100, or 20 of a namespace, are counted as __other__.",
		Buckets:        []float64{50, 100, 250, 500, 750, 1000, 1500, 2000, 2500, 5000, 10000, 30000, 60000, 120000, 240000, 600000},
		StabilityLevel: metrics.ALPHA,
	}, []string{"namespace", "launch_type", "sandbox_template"})

	agentClaims = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: agentMetrics,
		Name:      "claim_creation_total",
		Help: "Sandboxes given to claims of either API, from pools or made for the claim. " +
			"Pools beyond the first 100, or 20 of a namespace, are counted as __other__.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"namespace", "sandbox_template", "launch_type", "warmpool_name", "pod_condition", "created_by"})

	registerAgentMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(claimStartup, claimControllerStartup, clientClaimStartup, agentCreation, agentClaims)
		const other = claims.OtherFigures // a rate needs a 0 to begin with
		for _, launch := range []string{v1alpha1.AgentLaunchWarm, v1alpha1.AgentLaunchCold} {
			for _, histogram := range []*metrics.HistogramVec{claimStartup, claimControllerStartup, clientClaimStartup} {
				histogram.WithLabelValues(launch, other)
			}
			agentCreation.WithLabelValues(other, launch, other)
			agentClaims.WithLabelValues(other, other, launch, other, podReady, claims.UnknownFigure).Add(0)
		}
	})

	// measuredTemplates are the templates of namespaces that have figures of their own, and
	// measuredSources the pairs of a template and a pool, as source writes them.
	measuredTemplates = newMeasured(claims.OtherFigures, forgetTemplate)
	measuredSources   = newMeasured(claims.OtherFigures, forgetSource)
)

func startupHistogram(name, since string) *metrics.HistogramVec {
	return metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: agentMetrics,
		Name:      name,
		Help: "Milliseconds until a claim of agent-sandbox is Ready first, from when " + since + ". " +
			"Templates beyond the first 100, or 20 of a namespace, are counted as __other__.",
		Buckets:        startupBuckets,
		StabilityLevel: metrics.ALPHA,
	}, startupLabels)
}

// source is what agentClaims counts sandboxes by beside their namespace and client.
type source struct{ template, pool string }

// name is that of the place of a source. No name has a slash.
func (s source) name() string { return s.template + "/" + s.pool }

// sourceAt returns the source that has a place.
func sourceAt(place types.NamespacedName) source {
	if template, pool, ok := strings.Cut(place.Name, "/"); ok {
		return source{template, pool}
	}
	return source{place.Name, place.Name}
}

func forgetSource(place types.NamespacedName, _ bool) {
	s := sourceAt(place)
	for _, launch := range []string{v1alpha1.AgentLaunchWarm, v1alpha1.AgentLaunchCold} {
		for _, condition := range []string{podReady, podNotReady} {
			for _, by := range claims.CreatedByValues() {
				agentClaims.Delete(map[string]string{
					"namespace": place.Namespace, "sandbox_template": s.template, "warmpool_name": s.pool,
					"launch_type": launch, "pod_condition": condition, "created_by": by,
				})
			}
		}
	}
}

func forgetTemplate(place types.NamespacedName, shared bool) {
	for _, launch := range []string{v1alpha1.AgentLaunchWarm, v1alpha1.AgentLaunchCold, claims.UnknownFigure} {
		of := map[string]string{"launch_type": launch, "sandbox_template": place.Name}
		if !shared && place.Name != claims.OtherFigures { // the namespace is no label of these
			claimStartup.Delete(of)
			claimControllerStartup.Delete(of)
			clientClaimStartup.Delete(of)
		}
		of["namespace"] = place.Namespace
		agentCreation.Delete(of)
	}
}
