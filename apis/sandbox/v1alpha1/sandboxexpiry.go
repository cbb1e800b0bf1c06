// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
)

// AgentLabelAdoptable is "true" on a volume claim without a controller that a
// sandbox of agent-sandbox may take for its own.
const AgentLabelAdoptable = AgentKeyPrefix + "adoptable"

// Condition types that only sandboxes of agent-sandbox have (see OfAgentSandbox), and
// that keep what their status in that API cannot be derived from.
const (
	// SandboxConditionSuspended has when the sandbox was suspended or resumed last. It is
	// there from the first time on, True when the pod is gone.
	SandboxConditionSuspended = "Suspended"
	// SandboxConditionFinished has when the pod ended. It is True, with ReasonPodSucceeded
	// or ReasonPodFailed, and there for as long as the phase says so too.
	SandboxConditionFinished = "Finished"
)

// Reasons of conditions of such sandboxes.
const (
	// ReasonSandboxExpired goes with Ready false of a sandbox that was kept past its
	// shutdownTime, and has no pod any more.
	ReasonSandboxExpired = "SandboxExpired"
	// ReasonPodNotOwned goes with SandboxPaused and Suspended false while a pod that is not
	// the sandbox's has its name.
	ReasonPodNotOwned = "PodNotOwned"
	// ReasonPodTerminated goes with Suspended true.
	ReasonPodTerminated = "PodTerminated"
	// ReasonPodTerminating goes with Suspended false of a sandbox that is to be suspended.
	ReasonPodTerminating = "PodTerminating"
	// ReasonNotSuspended goes with Suspended false of a sandbox that runs, or is to run.
	ReasonNotSuspended = "NotSuspended"
)

// KeptAtShutdown reports whether a sandbox is kept when its shutdownTime has come: its
// pod and its Service are deleted, and it stays with its status.
func KeptAtShutdown(sandbox *Sandbox) bool {
	if policy := sandbox.Spec.ShutdownPolicy; policy != "" {
		return policy == ShutdownRetain
	}
	return OfAgentSandbox(sandbox)
}

// ShutdownDue reports whether the shutdownTime of a sandbox has come.
func ShutdownDue(sandbox *Sandbox, now time.Time) bool {
	t := sandbox.Spec.ShutdownTime
	return t != nil && !now.Before(t.Time)
}

// SandboxExpired reports whether the status says that a sandbox was kept past its
// shutdownTime.
func SandboxExpired(sandbox *Sandbox) bool {
	ready := meta.FindStatusCondition(sandbox.Status.Conditions, SandboxConditionReady)
	return ready != nil && ready.Reason == ReasonSandboxExpired
}
