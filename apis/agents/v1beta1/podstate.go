// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// podState is what the status of a stored sandbox says about its pod.
type podState int

const (
	// podMissing: there is none.
	podMissing podState = iota
	// podRefused: there is none, because it cannot be made.
	podRefused
	// podPending: it does not run yet.
	podPending
	// podRunning: it runs, and is not ready.
	podRunning
	// podWithoutIP: it is ready, and its address is not known.
	podWithoutIP
	// podReady: it is ready.
	podReady
	// podEnded: it ran, and ended.
	podEnded
)

// podStateOf derives the state of a sandbox's pod. The controller writes the condition Ready
// together with, or after, the create of the pod, and says PodDeleted of one that is gone.
func podStateOf(sandbox *hub.Sandbox) podState {
	status := &sandbox.Status
	ready := find(sandbox, hub.SandboxConditionReady)
	switch {
	case ready == nil, ready.Reason == hub.ReasonPodDeleted, ready.Reason == hub.ReasonSandboxExpired:
		return podMissing
	case isFinished(sandbox):
		return podEnded
	case isRefused(ready.Reason):
		return podRefused
	case status.Phase == hub.SandboxPaused, status.Phase == hub.SandboxRecycling:
		return podMissing // or about to be
	case ready.Status == metav1.ConditionTrue && status.SandboxIP == "" && status.PodInfo.PodIP == "":
		return podWithoutIP
	case ready.Status == metav1.ConditionTrue:
		return podReady
	case status.Phase == hub.SandboxPending, status.Phase == "":
		return podPending
	case status.Phase == hub.SandboxResuming && status.PodInfo.PodUID == "":
		return podPending
	}
	return podRunning
}

// isRefused reports whether a reason of the stored condition Ready means that the pod
// cannot be made.
func isRefused(reason string) bool {
	switch reason {
	case hub.ReasonPodCreateFailed,
		hub.ReasonTemplateNotFound, hub.ReasonTemplateCycle, hub.ReasonTemplateKindWrong,
		hub.ReasonInvalidPatch, hub.ReasonInvalidTemplate,
		hub.ReasonRuntimeNotFound, hub.ReasonInvalidRuntime:
		return true
	}
	return false
}

// HasPod reports whether there is a pod, as far as the status of a stored sandbox tells.
func HasPod(sandbox *hub.Sandbox) bool { return podStateOf(sandbox).exists() }

// exists reports whether there is a pod.
func (s podState) exists() bool { return s != podMissing && s != podRefused }

// message says in the words of this API how the pod of a sandbox is that is to run.
func (s podState) message() string {
	switch s {
	case podPending:
		return "Pod exists with phase: Pending"
	case podRunning:
		return "Pod is Running but not Ready"
	case podWithoutIP:
		return "Pod is Ready but has no podIPs yet"
	case podReady:
		return "Pod is Ready"
	}
	return "Pod does not exist"
}
