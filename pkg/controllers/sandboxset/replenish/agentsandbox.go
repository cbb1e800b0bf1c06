// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// The rules of agent-sandbox for its pools, which are sets with one of its update types
// (v1alpha1.IsAgentSandboxPool). Other sets wait for their sandboxes as long as it takes, as OpenKruise's do.
const (
	// progressDeadline is how long a sandbox of such a pool may be not ready before it is
	// replaced, without the time that its pod waits behind a scheduling gate.
	progressDeadline = 5 * time.Minute
	// unscheduledRecheck is after what time one that no node takes is looked at again.
	unscheduledRecheck = time.Minute
)

// notReadyTooLong are the sandboxes of a pool that have not been ready for too long.
type notReadyTooLong struct {
	// replace are those for which another one may do better.
	replace []*v1alpha1.Sandbox
	// keptUnscheduled is how many are kept all the same, because their pods are unschedulable or
	// wait behind a scheduling gate: another one would wait in the same way.
	keptUnscheduled int
	// requeueAfter is after what time there may be more; 0 is never.
	requeueAfter time.Duration
}

// withoutNode are the reasons of the condition PodScheduled of a pod without a node.
var withoutNode = []string{corev1.PodReasonUnschedulable, corev1.PodReasonSchedulingGated, corev1.PodReasonSchedulerError}

// findNotReadyTooLong returns the sandboxes of a pool of agent-sandbox that have not been ready for
// too long.
func (o *observation) findNotReadyTooLong(c *poolCounts) notReadyTooLong {
	var s notReadyTooLong
	if !v1alpha1.IsAgentSandboxPool(o.set) || !o.canCreate() {
		return s
	}
	for _, sandbox := range c.creating {
		remaining := notReadySince(sandbox).Add(progressDeadline).Sub(o.now)
		switch reason, _, known := whyNotAvailable(sandbox); {
		case remaining > 0:
			s.requeueAfter = queue.MinRequeue(s.requeueAfter, remaining)
		case v1alpha1.IsGated(sandbox), known && slices.Contains(withoutNode, reason):
			s.keptUnscheduled++
			s.requeueAfter = queue.MinRequeue(s.requeueAfter, unscheduledRecheck)
		default:
			s.replace = append(s.replace, sandbox)
		}
	}
	return s
}

// notReadySince is since when a sandbox has not been ready, without the time that its pod
// has waited behind a scheduling gate.
func notReadySince(sandbox *v1alpha1.Sandbox) time.Time {
	since := later(sandbox.CreationTimestamp.Time, v1alpha1.GatesRemovedAt(sandbox))
	ready := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return since
	}
	return later(since, ready.LastTransitionTime.Time)
}

// sendProgressEvent sends an event when sandboxes that have not been ready for too long begin to be
// kept because they have no node, and another one when that is over.
func (c *Controller) sendProgressEvent(set *v1alpha1.SandboxSet, keptUnscheduled int) {
	var wasReported bool
	c.states.withState(client.ObjectKeyFromObject(set), func(s *setState) { wasReported, s.unscheduledReported = s.unscheduledReported, keptUnscheduled > 0 })
	switch {
	case keptUnscheduled > 0 && !wasReported:
		c.report.event(set, corev1.EventTypeWarning, eventNotProgressing, "Reconciling", fmt.Sprintf(
			"%d sandboxes have not been ready for %s because their pods are unschedulable or behind scheduling gates; they are kept until their pods have a node", keptUnscheduled, progressDeadline))
	case keptUnscheduled == 0 && wasReported:
		c.report.event(set, corev1.EventTypeNormal, eventProgressing, "Reconciling", "No sandbox waits for a node for too long any more")
	}
}
