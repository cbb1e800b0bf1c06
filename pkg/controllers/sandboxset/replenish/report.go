// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// The operations that writesFailed tells apart.
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

// show sets the gauges of a set.
func (g poolGauges) show(set types.NamespacedName) {
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

// showShortage shows since when a pool has been short; zero is that it is not.
func showShortage(set types.NamespacedName, since time.Time) {
	if since.IsZero() {
		setShortSince.DeleteLabelValues(set.Namespace, set.Name)
		return
	}
	setShortSince.WithLabelValues(set.Namespace, set.Name).Set(float64(since.UnixMilli()) / 1000)
}

// hidePool removes the gauges of a set that is gone.
func hidePool(set types.NamespacedName) {
	labels := prometheus.Labels{"sandboxset_namespace": set.Namespace, "sandboxset": set.Name}
	setReplicas.Delete(labels)
	setBurst.Delete(labels)
	setShortSince.Delete(labels)
	setSandboxes.DeletePartialMatch(labels)
}

// Reasons of events on SandboxSets. They are OpenKruise's, except for the last eight. That
// a template cannot be used has the reason of the condition TemplateResolved.
const (
	eventSandboxCreated       = "SandboxCreated"
	eventCreateSandboxFailed  = "CreateSandboxFailed"
	eventSandboxScaledDown    = "SandboxScaledDown"
	eventFailedSandboxDeleted = "FailedSandboxDeleted"
	eventRollingUpdate        = "RollingUpdate"
	// eventTemplateResolved: a template that could not be used can be.
	eventTemplateResolved = "TemplateResolved"
	// eventRevisionNotHeld: there is no SandboxTemplate for the revision of a set with
	// a template of its own. Its pool is kept all the same.
	eventRevisionNotHeld = "RevisionNotHeld"
	// eventSandboxesCannotStart: sandboxes of the pool cannot start. The reason is that of
	// the condition Available.
	eventSandboxesCannotStart = v1alpha1.ReasonSandboxesCannotStart
	// eventRevisionReplaced: the SandboxTemplate of a revision had other content than the
	// set has resolved to. It was deleted and made anew.
	eventRevisionReplaced = "RevisionReplaced"
	// eventRuntimeInitFailed: a sandbox was deleted whose agent-runtime another caller has
	// initialized.
	eventRuntimeInitFailed = v1alpha1.ReasonRuntimeInitFailed
	// eventNotProgressing and eventProgressing: no node takes sandboxes of a warm pool, and
	// that is over. They are agent-sandbox's.
	eventNotProgressing = "WarmPoolNotProgressing"
	eventProgressing    = "WarmPoolProgressing"
	// eventNodeUnavailable: sandboxes are replaced because their nodes take no pods.
	eventNodeUnavailable = "SandboxNodeUnavailable"
)

// reporter records what is done for a set, as events on it and in counters.
type reporter struct {
	recorder recorder.EventRecorder // nil where there are no events
}

// created reports how a round of creates went.
func (r *reporter) created(set *v1alpha1.SandboxSet, n int, err error) {
	sandboxesCreated.Add(float64(n))
	if n > 0 {
		r.event(set, corev1.EventTypeNormal, eventSandboxCreated, "Create", fmt.Sprintf("Created %d sandboxes", n))
	}
	if refused(err) {
		writesFailed.WithLabelValues(operationCreate).Inc()
		r.event(set, corev1.EventTypeWarning, eventCreateSandboxFailed, "Create", err.Error())
	}
}

// removed reports how a round of deletes went.
func (r *reporter) removed(set *v1alpha1.SandboxSet, removed map[removalReason]int, err error) {
	for reason, n := range removed {
		sandboxesDeleted.WithLabelValues(string(reason)).Add(float64(n))
		switch reason {
		case removalEnded:
			r.event(set, corev1.EventTypeNormal, eventFailedSandboxDeleted, "Delete", fmt.Sprintf("Deleted %d sandboxes that had ended", n))
		case removalSurplus:
			r.event(set, corev1.EventTypeNormal, eventSandboxScaledDown, "Delete", fmt.Sprintf("Deleted %d sandboxes that were too many", n))
		case removalOutdated:
			r.event(set, corev1.EventTypeNormal, eventRollingUpdate, "Delete", fmt.Sprintf("Deleted %d sandboxes of an older revision", n))
		case removalNotReady:
			r.event(set, corev1.EventTypeNormal, eventFailedSandboxDeleted, "Delete",
				fmt.Sprintf("Deleted %d sandboxes that had not been ready for %s", n, progressDeadline))
		case removalNodeUnavailable:
			r.event(set, corev1.EventTypeNormal, eventNodeUnavailable, "Delete",
				fmt.Sprintf("Deleted %d sandboxes whose nodes have been cordoned, not ready or gone for %s", n, replaceAfter))
		}
	}
	if refused(err) {
		writesFailed.WithLabelValues(operationDelete).Inc()
	}
}

// foreignToken reports that a sandbox was deleted whose agent-runtime another caller has
// initialized, if that is so. Only Sandlot should be able to connect to it.
func (r *reporter) foreignToken(set *v1alpha1.SandboxSet, sandbox *v1alpha1.Sandbox) {
	c := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
	if c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonFailed {
		r.event(set, corev1.EventTypeWarning, eventRuntimeInitFailed, "Delete", fmt.Sprintf("Deleted Sandbox %s: %s", sandbox.Name, c.Message))
	}
}

// revisionMissing reports that the revision of a set is in no SandboxTemplate.
func (r *reporter) revisionMissing(set *v1alpha1.SandboxSet, err error) {
	r.event(set, corev1.EventTypeWarning, eventRevisionNotHeld, "Create", err.Error())
}

// cannotStart reports why sandboxes of a set cannot start. The text has no count, so that
// events are aggregated.
func (r *reporter) cannotStart(set *v1alpha1.SandboxSet, t *startFailure) {
	r.event(set, corev1.EventTypeWarning, eventSandboxesCannotStart, "Start", "Sandboxes cannot start: "+t.cause())
}

// revisionReplaced reports that a SandboxTemplate did not hold its revision.
func (r *reporter) revisionReplaced(set *v1alpha1.SandboxSet, name string) {
	r.event(set, corev1.EventTypeWarning, eventRevisionReplaced, "Create", fmt.Sprintf(
		"SandboxTemplate %s did not have the content of the revision that its name says, and was replaced. A user who may write SandboxTemplates here can have done that", name))
}

// statusWritten reports that what a set refers to has come to resolve, or to do so no
// longer, or has another fault.
func (r *reporter) statusWritten(before *v1alpha1.SandboxSet, after *v1alpha1.SandboxSetStatus) {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.SetConditionTemplateResolved)
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.SetConditionTemplateResolved)
	switch {
	case is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message:
	case is.Status != metav1.ConditionTrue:
		r.event(before, corev1.EventTypeWarning, is.Reason, "Resolve", is.Message)
	case was != nil && was.Status != metav1.ConditionTrue: // that all is well from the start is no news
		r.event(before, corev1.EventTypeNormal, eventTemplateResolved, "Resolve", "The template can be used again")
	}
}

func (r *reporter) event(set *v1alpha1.SandboxSet, kind, reason, action, note string) {
	report.Recorder{EventRecorder: r.recorder, Kind: "SandboxSet", Action: action}.Event(set, kind, reason, note)
}

// refused reports whether the API ended a write with an error, as opposed to this
// program being stopped.
func refused(err error) bool { return err != nil && !errors.Is(err, context.Canceled) }

// maxMessage is how long the message of a condition may be here. The API takes 32768
// bytes, which is more than a reader does.
const maxMessage = 2048
