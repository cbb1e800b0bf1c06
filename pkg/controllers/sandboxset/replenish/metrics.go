// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// The operations of writesFailed.
const (
	operationCreate = "create"
	operationDelete = "delete"
)

// removalReason is why a sandbox of a pool is deleted.
type removalReason string

const (
	removalEnded           removalReason = "ended"
	removalSurplus         removalReason = "surplus"
	removalOutdated        removalReason = "outdated"
	removalNotReady        removalReason = "not_ready"
	removalNodeUnavailable removalReason = "node_unavailable"
)

var (
	// Not just namespace: that is what a target's own namespace is called where
	// Prometheus finds its targets in a cluster.
	setLabels = []string{"sandboxset_namespace", "sandboxset"}

	sandboxesCreated = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sandlot_sandboxset_sandboxes_created_total",
		Help: "Sandboxes created for the pools of SandboxSets.",
	})
	sandboxesDeleted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandlot_sandboxset_sandboxes_deleted_total",
		Help: "Sandboxes of pools deleted, by reason: they had ended, were surplus, of an outdated revision, not ready for too long, or on a node that takes no pods.",
	}, []string{"reason"})
	writesFailed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandlot_sandboxset_writes_failed_total",
		Help: "Rounds of creating or deleting sandboxes of a pool that ended with an error of the API.",
	}, []string{"operation"})
	templatePatches = prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sandlot_template_patches_total",
		Help: "Patches of SandboxSets applied to pod templates. Results are cached, so this grows with templates and sets, not with sandboxes.",
	}, func() float64 { return float64(podtemplate.Patched()) })
	startDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sandlot_sandbox_start_duration_seconds",
		Help:    "Time from the creation of a sandbox for a pool until it is available.",
		Buckets: []float64{.1, .25, .5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1800},
	})
	replenishDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sandlot_sandboxset_replenish_duration_seconds",
		Help:    "Time from the moment at which a pool has fewer available sandboxes than its set wants until it has them again.",
		Buckets: []float64{.1, .25, .5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1800, 3600},
	})
	setReplicas = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandlot_sandboxset_replicas",
		Help: "Unused sandboxes that a SandboxSet wants.",
	}, setLabels)
	setBurst = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandlot_sandboxset_burst",
		Help: "Unused sandboxes that a SandboxSet with a burst wants beyond its replicas, because claims wait for them.",
	}, setLabels)
	setSandboxes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandlot_sandboxset_sandboxes",
		Help: "Sandboxes of a SandboxSet's pool as the controller counts them, by state.",
	}, append([]string{"state"}, setLabels...))
	setShortSince = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandlot_sandboxset_short_since_timestamp_seconds",
		Help: "Since when a SandboxSet has had fewer available sandboxes than it wants, in seconds since the epoch. Absent while it has enough.",
	}, setLabels)
)

func init() {
	metrics.Registry.MustRegister(sandboxesCreated, sandboxesDeleted, writesFailed, templatePatches, startDuration, replenishDuration,
		setReplicas, setBurst, setSandboxes, setShortSince)
	// A rate needs a 0 to begin with.
	for _, reason := range []removalReason{removalEnded, removalSurplus, removalOutdated, removalNotReady, removalNodeUnavailable} {
		sandboxesDeleted.WithLabelValues(string(reason))
	}
	for _, operation := range []string{operationCreate, operationDelete} {
		writesFailed.WithLabelValues(operation)
	}
}

// poolGauges are the figures of a pool.
type poolGauges struct {
	replicas, available, creating, ended int
	burst                                *int // nil for a set without one
}

// set sets the gauges of a set.
func (g poolGauges) set(set types.NamespacedName) {
	setReplicas.WithLabelValues(set.Namespace, set.Name).Set(float64(g.replicas))
	if g.burst != nil {
		setBurst.WithLabelValues(set.Namespace, set.Name).Set(float64(*g.burst))
	} else {
		setBurst.DeleteLabelValues(set.Namespace, set.Name)
	}
	for state, n := range map[string]int{"available": g.available, "creating": g.creating, "ended": g.ended} {
		setSandboxes.WithLabelValues(state, set.Namespace, set.Name).Set(float64(n))
	}
}

// setShortageGauge shows since when a pool has been short; zero is that it is not.
func setShortageGauge(set types.NamespacedName, since time.Time) {
	if since.IsZero() {
		setShortSince.DeleteLabelValues(set.Namespace, set.Name)
		return
	}
	setShortSince.WithLabelValues(set.Namespace, set.Name).Set(float64(since.UnixMilli()) / 1000)
}

// deleteGauges removes the gauges of a set that is gone.
func deleteGauges(set types.NamespacedName) {
	labels := prometheus.Labels{"sandboxset_namespace": set.Namespace, "sandboxset": set.Name}
	setReplicas.Delete(labels)
	setBurst.Delete(labels)
	setShortSince.Delete(labels)
	setSandboxes.DeletePartialMatch(labels)
}
