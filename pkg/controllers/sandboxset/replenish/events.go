// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
)

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
	// eventNotProgressing and eventProgressing: sandboxes of a pool of agent-sandbox are kept
	// although they have not been ready for too long, because they have no node; and that is
	// over. They are agent-sandbox's.
	eventNotProgressing = "WarmPoolNotProgressing"
	eventProgressing    = "WarmPoolProgressing"
	// eventNodeUnavailable: sandboxes are replaced because their nodes take no pods.
	eventNodeUnavailable = "SandboxNodeUnavailable"
)

// reporter records what is done for a set, as events on it and in counters.
type reporter struct {
	recorder    recorder.EventRecorder // nil where there are no events
	nodeTimeout time.Duration          // of unavailableNodes
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
			r.event(set, corev1.EventTypeNormal, eventFailedSandboxDeleted, "Delete", fmt.Sprintf("Deleted %d sandboxes that could not be claimed any more", n))
		case removalSurplus:
			r.event(set, corev1.EventTypeNormal, eventSandboxScaledDown, "Delete", fmt.Sprintf("Deleted %d sandboxes that were too many", n))
		case removalOutdated:
			r.event(set, corev1.EventTypeNormal, eventRollingUpdate, "Delete", fmt.Sprintf("Deleted %d sandboxes of an older revision", n))
		case removalNotReady:
			r.event(set, corev1.EventTypeNormal, eventFailedSandboxDeleted, "Delete",
				fmt.Sprintf("Deleted %d sandboxes that had not been ready for %s", n, progressDeadline))
		case removalNodeUnavailable:
			r.event(set, corev1.EventTypeNormal, eventNodeUnavailable, "Delete",
				fmt.Sprintf("Deleted %d sandboxes whose nodes have been cordoned, not ready or gone for %s", n, r.nodeTimeout))
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

func (r *reporter) event(set *v1alpha1.SandboxSet, eventType, reason, action, note string) {
	report.Recorder{EventRecorder: r.recorder, Kind: "SandboxSet", Action: action}.Event(set, eventType, reason, note)
}

// refused reports whether the API ended a write with an error, as opposed to this
// program being stopped.
func refused(err error) bool { return err != nil && !errors.Is(err, context.Canceled) }
