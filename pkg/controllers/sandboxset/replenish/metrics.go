// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sandlot-io/sandlot/pkg/podtemplate"

	"github.com/sandlot-io/sandlot/pkg/claims"
)

const (
	operationCreate = "create"
	operationDelete = "delete"
)

// The states in which a pool's sandboxes are counted, see census.
const (
	stateAvailable = "available"
	stateCreating  = "creating"
	stateEnded     = "ended"
)

var (
	// Not just namespace: that is what a target's own namespace is called where
	// Prometheus finds its targets in a cluster.
	ofSet = []string{"sandboxset_namespace", "sandboxset"}

	sandboxesCreated = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sandlot_sandboxset_sandboxes_created_total",
		Help: "Sandboxes created for the pools of SandboxSets.",
	})
	sandboxesDeleted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandlot_sandboxset_sandboxes_deleted_total",
		Help: "Sandboxes of pools deleted, by why: they had ended, were too many, or of an older revision.",
	}, []string{"reason"})
	writesFailed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandlot_sandboxset_writes_failed_total",
		Help: "Rounds of creating or deleting sandboxes of a pool that the API ended with an error.",
	}, []string{"operation"})
	templatePatches = prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sandlot_template_patches_total",
		Help: "Patches of SandboxSets applied to pod templates. What came of one is remembered, so this grows with templates and sets, not with sandboxes.",
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
	}, ofSet)
	setBurst = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandlot_sandboxset_burst",
		Help: "Unused sandboxes that a SandboxSet with a burst wants beyond its replicas, because claims wait for them.",
	}, ofSet)
	setSandboxes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandlot_sandboxset_sandboxes",
		Help: "Sandboxes of a SandboxSet's pool as the controller counts them, by state.",
	}, append([]string{"state"}, ofSet...))
	setShortSince = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandlot_sandboxset_short_since_timestamp_seconds",
		Help: "Since when a SandboxSet has had fewer available sandboxes than it wants, in seconds since the epoch. Absent while it has enough.",
	}, ofSet)
)

func init() {
	metrics.Registry.MustRegister(sandboxesCreated, sandboxesDeleted, writesFailed, templatePatches, startDuration, replenishDuration,
		setReplicas, setBurst, setSandboxes, setShortSince)
	// A rate needs a 0 to begin with.
	for _, why := range []removal{removalEnded, removalSurplus, removalOutdated} {
		sandboxesDeleted.WithLabelValues(string(why))
	}
	for _, operation := range []string{operationCreate, operationDelete} {
		writesFailed.WithLabelValues(operation)
	}
}

// showPool shows what a look at a pool found.
func showPool(set types.NamespacedName, o *observation, c *census) {
	setReplicas.WithLabelValues(set.Namespace, set.Name).Set(float64(o.replicas()))
	if claims.Burst(o.set) > 0 {
		setBurst.WithLabelValues(set.Namespace, set.Name).Set(float64(o.ahead.wanted))
	} else {
		setBurst.DeleteLabelValues(set.Namespace, set.Name)
	}
	for state, n := range map[string]int{
		stateAvailable: len(c.available),
		stateCreating:  len(c.creating) + max(c.pending, 0),
		stateEnded:     len(c.garbage),
	} {
		setSandboxes.WithLabelValues(state, set.Namespace, set.Name).Set(float64(n))
	}
}

// showShortage shows since when a pool has been short; zero is that it is not.
func showShortage(set types.NamespacedName, since time.Time) {
	if since.IsZero() {
		setShortSince.DeleteLabelValues(set.Namespace, set.Name)
		return
	}
	setShortSince.WithLabelValues(set.Namespace, set.Name).Set(float64(since.UnixMilli()) / 1000)
}

// hidePool ends what is shown of a set that is gone.
func hidePool(set types.NamespacedName) {
	labels := prometheus.Labels{"sandboxset_namespace": set.Namespace, "sandboxset": set.Name}
	setReplicas.Delete(labels)
	setBurst.Delete(labels)
	setShortSince.Delete(labels)
	setSandboxes.DeletePartialMatch(labels)
}
