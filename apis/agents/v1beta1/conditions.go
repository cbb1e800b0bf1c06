// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Condition types of a Sandbox.
const (
	// ConditionReady is true while the pod is ready, has an address, and the Service is
	// there that the sandbox asks for.
	ConditionReady = "Ready"
	// ConditionSuspended is true while the sandbox is suspended and its pod is gone. It is
	// always there.
	ConditionSuspended = "Suspended"
	// ConditionPodScheduled is there while there is a pod.
	ConditionPodScheduled = "PodScheduled"
	// ConditionFinished is true of a sandbox whose pod ended, and else not there.
	ConditionFinished = "Finished"
)

// Reasons of conditions, beside those that have the same name in agents.kruise.io.
const (
	// ReasonDependenciesReady goes with Ready true.
	ReasonDependenciesReady = "DependenciesReady"
	// ReasonDependenciesNotReady goes with Ready false of a sandbox that is to run.
	ReasonDependenciesNotReady = "DependenciesNotReady"
	// ReasonSandboxSuspended goes with Ready false of a sandbox that is suspended, or to be.
	ReasonSandboxSuspended = "SandboxSuspended"
	// ReasonReconcilerError goes with Ready false of a sandbox whose pod cannot be made.
	ReasonReconcilerError = "ReconcilerError"
	// ReasonPodStateUnknown goes with Suspended unknown: it is not known yet whether there
	// is a pod to be deleted.
	ReasonPodStateUnknown = "PodStateUnknown"
	// ReasonPodScheduled goes with PodScheduled true.
	ReasonPodScheduled = "PodScheduled"
	// ReasonPodSchedulingUnknown goes with PodScheduled unknown.
	ReasonPodSchedulingUnknown = "PodSchedulingUnknown"
)

// ConditionsOf derives the conditions that a stored sandbox has in this API, ordered by
// type. It is pure: times are the stored ones, so they are the same whenever it is asked.
func ConditionsOf(sandbox *hub.Sandbox) []metav1.Condition {
	var conditions []metav1.Condition
	if finished := FinishedOf(sandbox); finished != nil {
		conditions = append(conditions, *finished)
	}
	if scheduled := scheduledOf(sandbox); scheduled != nil {
		conditions = append(conditions, *scheduled)
	}
	return append(conditions, ReadyOf(sandbox), suspendedOf(sandbox))
}

// ReadyOf derives the condition Ready that a stored sandbox has in this API.
func ReadyOf(sandbox *hub.Sandbox) metav1.Condition {
	ready := condition(sandbox, ConditionReady, metav1.ConditionFalse, "", "", sandbox.CreationTimestamp)
	if stored := find(sandbox, hub.SandboxConditionReady); stored != nil {
		ready.LastTransitionTime = stored.LastTransitionTime
	}
	switch {
	case hub.SandboxExpired(sandbox):
		ready.Reason, ready.Message = hub.ReasonSandboxExpired, "Sandbox has expired"
	case sandbox.Spec.Paused:
		ready.Reason, ready.Message = ReasonSandboxSuspended, "Sandbox is suspending"
		if isSuspended(sandbox) {
			ready.Message = "Sandbox is suspended"
		}
	case isFinished(sandbox):
		ready.Reason, ready.Message = endOf(sandbox)
	default:
		ready.Status, ready.Reason, ready.Message = dependencies(sandbox)
	}
	return ready
}

// FinishedOf derives the condition Finished that a stored sandbox has in this API, or nil
// if its pod has not ended.
func FinishedOf(sandbox *hub.Sandbox) *metav1.Condition {
	if !isFinished(sandbox) {
		return nil
	}
	since := sandbox.CreationTimestamp
	for _, kind := range []string{hub.SandboxConditionReady, hub.SandboxConditionFinished} {
		if stored := find(sandbox, kind); stored != nil {
			since = stored.LastTransitionTime
		}
	}
	reason, message := endOf(sandbox)
	finished := condition(sandbox, ConditionFinished, metav1.ConditionTrue, reason, message, since)
	return &finished
}

// endOf says how the pod of a sandbox ended that has.
func endOf(sandbox *hub.Sandbox) (reason, message string) {
	if sandbox.Status.Phase == hub.SandboxSucceeded {
		return hub.ReasonPodSucceeded, "Pod completed successfully"
	}
	return hub.ReasonPodFailed, "Pod failed"
}

// dependencies says whether the pod, and the Service if the sandbox asks for one, are as
// they should be.
func dependencies(sandbox *hub.Sandbox) (metav1.ConditionStatus, string, string) {
	state := podStateOf(sandbox)
	if state == podRefused {
		return metav1.ConditionFalse, ReasonReconcilerError, "Error seen: " + find(sandbox, hub.SandboxConditionReady).Message
	}
	ready, message := state == podReady, state.message()
	switch wanted := sandbox.Spec.Service; {
	case sandbox.Status.ServiceFQDN != "":
		message += "; Service Exists"
	case wanted != nil && *wanted:
		ready = false
		message += "; Service does not exist"
		if err := hub.CheckServiceName(wanted, sandbox.Name); err != nil {
			message += ": " + err.Error()
		}
	}
	if ready {
		return metav1.ConditionTrue, ReasonDependenciesReady, message
	}
	return metav1.ConditionFalse, ReasonDependenciesNotReady, message
}

// suspendedOf derives the condition Suspended.
func suspendedOf(sandbox *hub.Sandbox) metav1.Condition {
	suspended := condition(sandbox, ConditionSuspended, metav1.ConditionFalse, "", "", runsSince(sandbox))
	paused := find(sandbox, hub.SandboxConditionPaused)
	switch {
	case !sandbox.Spec.Paused:
		suspended.Reason, suspended.Message = hub.ReasonNotSuspended, "Sandbox is not suspended"
	case isSuspended(sandbox):
		suspended.Status = metav1.ConditionTrue
		suspended.Reason, suspended.Message = hub.ReasonPodTerminated, "Pod has been terminated. Sandbox is suspended"
		suspended.LastTransitionTime = paused.LastTransitionTime
	case paused == nil || sandbox.Status.Phase != hub.SandboxPaused:
		suspended.Status = metav1.ConditionUnknown
		suspended.Reason, suspended.Message = ReasonPodStateUnknown, "The state of the pod is not known yet"
	case paused.Reason == hub.ReasonPodNotOwned:
		suspended.Reason, suspended.Message = hub.ReasonPodNotOwned, "Refused to delete pod because it is not owned by this sandbox"
	default:
		suspended.Reason, suspended.Message = hub.ReasonPodTerminating, "Pod is terminating. Sandbox is suspending"
	}
	if stored := find(sandbox, hub.SandboxConditionSuspended); stored != nil && stored.Status == suspended.Status {
		suspended.LastTransitionTime = stored.LastTransitionTime
	}
	return suspended
}

// scheduledOf derives the condition PodScheduled, or nil without a pod. Of the pod's
// condition a sandbox stores only a reason that keeps the pod from starting.
func scheduledOf(sandbox *hub.Sandbox) *metav1.Condition {
	terminating := isTerminating(sandbox)
	if !terminating && !HasPod(sandbox) {
		return nil
	}
	scheduled := condition(sandbox, ConditionPodScheduled, metav1.ConditionUnknown,
		ReasonPodSchedulingUnknown, "Pod does not say whether it is scheduled", runsSince(sandbox))
	ready := find(sandbox, hub.SandboxConditionReady)
	switch {
	case sandbox.Status.NodeName != "" || ready != nil && ready.Reason == hub.ReasonStartContainerFailed:
		scheduled.Status, scheduled.Reason, scheduled.Message = metav1.ConditionTrue, ReasonPodScheduled, ""
	case !terminating && ready.Reason != hub.ReasonPodReady:
		scheduled.Status, scheduled.Reason, scheduled.Message = metav1.ConditionFalse, ready.Reason, ready.Message
	}
	return &scheduled
}

// runsSince is when a sandbox was resumed last, or else made.
func runsSince(sandbox *hub.Sandbox) metav1.Time {
	for _, kind := range []string{hub.SandboxConditionSuspended, hub.SandboxConditionResumed} {
		if stored := find(sandbox, kind); stored != nil {
			return stored.LastTransitionTime
		}
	}
	return sandbox.CreationTimestamp
}

// isSuspended reports whether a sandbox that is to be suspended has no pod any more.
func isSuspended(sandbox *hub.Sandbox) bool {
	return sandbox.Status.Phase == hub.SandboxPaused &&
		meta.IsStatusConditionTrue(sandbox.Status.Conditions, hub.SandboxConditionPaused)
}

// isTerminating reports whether a sandbox that is paused or has expired still has its pod: the
// status names the pod until it is gone.
func isTerminating(sandbox *hub.Sandbox) bool {
	return sandbox.Status.PodInfo.PodUID != "" && (sandbox.Status.Phase == hub.SandboxPaused || hub.SandboxExpired(sandbox))
}

// isFinished reports whether the pod of a sandbox ended, and no other is made.
func isFinished(sandbox *hub.Sandbox) bool {
	return sandbox.Status.Phase == hub.SandboxSucceeded || sandbox.Status.Phase == hub.SandboxFailed
}

func find(sandbox *hub.Sandbox, kind string) *metav1.Condition {
	return meta.FindStatusCondition(sandbox.Status.Conditions, kind)
}

// condition makes a condition. One that does not say since when is as old as the sandbox.
func condition(
	sandbox *hub.Sandbox, kind string, status metav1.ConditionStatus, reason, message string, since metav1.Time,
) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: sandbox.Generation,
		LastTransitionTime: cmp.Or(since, sandbox.CreationTimestamp),
	}
}
