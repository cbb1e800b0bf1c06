// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A sandbox that is resumed has another pod, whose agent-runtime knows nothing of the
// claim. While the sandbox is Resuming, the controller that runs pods says in the status
// when the new one is ready, with its address and RuntimeInitialized False/Pending; an
// API server sets the runtime up and says how that went; and then the sandbox is Running.
//
// So it is after a restart of a container, but the sandbox stays Running, and is not Ready with
// RuntimeRestarted instead.

const (
	// setupAgainLimit is how long a sandbox whose new pod is ready waits at most for its
	// agent-runtime to be set up, and mountsAgainLimit where there are volumes to mount.
	setupAgainLimit  = time.Minute
	mountsAgainLimit = 10 * time.Minute
	// maxSetupMessage bounds what a sandbox says about the setup of its agent-runtime, in
	// bytes. Errors of others are part of it, and have no bound.
	maxSetupMessage = 1024
)

// SetsUpAgain reports whether the agent-runtime of a sandbox is set up again when it is
// resumed: its claim has set it up, or it has the token of its pool. That of a sandbox that is
// starting for its claim is not, because the claim does it, nor that of a sandbox in a pool,
// which gets another token.
func SetsUpAgain(sb *v1alpha1.Sandbox) bool {
	asked := sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest] != "" || sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] != ""
	return asked && sb.Annotations[v1alpha1.AnnotationStarting] == "" && !v1alpha1.IsInPool(sb)
}

// BeginSetupAgain takes from the status of a sandbox what is known of the agent-runtime of
// the pod before, and says what is to be done with that of the next one. The time of the
// conditions is that from which SetupAgainLeft counts.
func BeginSetupAgain(sb *v1alpha1.Sandbox, status *v1alpha1.SandboxStatus, now time.Time) {
	switch {
	case SetsUpAgain(sb):
		setupAgainIs(status, v1alpha1.SandboxConditionRuntimeInitialized, sb.Generation, now)
		if meta.FindStatusCondition(status.Conditions, v1alpha1.SandboxConditionVolumesMounted) != nil {
			setupAgainIs(status, v1alpha1.SandboxConditionVolumesMounted, sb.Generation, now)
		}
	case v1alpha1.IsInPool(sb): // see BeginPoolSetup
	case sb.Annotations[v1alpha1.AnnotationStarting] == "":
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.SandboxConditionVolumesMounted)
	}
}

// setupAgainIs sets a condition to False/Pending, as of now whatever it was before.
func setupAgainIs(status *v1alpha1.SandboxStatus, kind string, generation int64, now time.Time) {
	pending := metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPending,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), // as it is stored
	}
	if before := meta.FindStatusCondition(status.Conditions, kind); before != nil {
		*before = pending
		return
	}
	status.Conditions = append(status.Conditions, pending)
}

// AwaitsSetupAfterRestart reports whether the pod of a sandbox that a claim holds is ready again after
// a container was restarted, and the agent-runtime is to be set up again.
func AwaitsSetupAfterRestart(status *v1alpha1.SandboxStatus) bool {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.SandboxConditionReady)
	return status.Phase == v1alpha1.SandboxRunning && ready != nil && ready.Reason == v1alpha1.ReasonRuntimeRestarted && SetupPending(status)
}

// SetupPending reports whether a status says that the agent-runtime is still to be set up.
func SetupPending(status *v1alpha1.SandboxStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonPending
}

// SetupAgainLeft is how much longer a sandbox waits whose agent-runtime is still to be set
// up; not positive if that is over.
func SetupAgainLeft(status *v1alpha1.SandboxStatus, now time.Time) time.Duration {
	limit := setupAgainLimit
	if meta.FindStatusCondition(status.Conditions, v1alpha1.SandboxConditionVolumesMounted) != nil {
		limit = mountsAgainLimit
	}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized); c != nil {
		return c.LastTransitionTime.Add(limit).Sub(now)
	}
	return 0
}

// SetupOverdue is why a sandbox continues whose agent-runtime no server set up.
func SetupOverdue() *SetupError {
	return &SetupError{
		Condition: v1alpha1.SandboxConditionRuntimeInitialized, Reason: v1alpha1.ReasonRuntimeInitFailed,
		Message: "the agent-runtime of the new pod or container was not set up in time; pause and resume the sandbox to try again",
	}
}

// EndSetupAgain says in the status of a sandbox that its agent-runtime is set up again, or
// why it is not.
func EndSetupAgain(status *v1alpha1.SandboxStatus, failed *SetupError, now time.Time) {
	set := func(kind string, value metav1.ConditionStatus, reason, message string) {
		c := metav1.Condition{
			Type: kind, Status: value, Reason: reason, Message: truncate(message, maxSetupMessage),
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		}
		if before := meta.FindStatusCondition(status.Conditions, kind); before != nil {
			c.ObservedGeneration = before.ObservedGeneration
		} else if failed == nil || failed.Condition != kind {
			return // nothing was to be done
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
	const initialized, mounted = v1alpha1.SandboxConditionRuntimeInitialized, v1alpha1.SandboxConditionVolumesMounted
	switch {
	case failed == nil:
		set(initialized, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "")
		set(mounted, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "")
	case failed.Condition == mounted:
		set(initialized, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "")
		set(mounted, metav1.ConditionFalse, v1alpha1.ReasonFailed, failed.Message)
	default:
		set(initialized, metav1.ConditionFalse, v1alpha1.ReasonFailed, failed.Message)
		set(mounted, metav1.ConditionFalse, v1alpha1.ReasonFailed, failed.Message)
	}
}
