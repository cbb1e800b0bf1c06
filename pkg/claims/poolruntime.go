// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// An agent-runtime takes commands from everyone until it has an access token. In a pool, the
// runtime gets its token before the sandbox is available. The claim keeps that token.
// The API server writes RuntimeInitialized False/Pending when the sandbox comes into the pool;
// when the pod is ready, an API server sets the token and writes how that went.

// BeginPoolSetup says in the status of a sandbox that comes into a pool, or whose pod was not
// ready for a while or had a container restarted, that its agent-runtime gets a token before the
// sandbox is available. Where a container has started anew, its agent-runtime has none.
func BeginPoolSetup(sb *v1alpha1.Sandbox, now time.Time) {
	setupAgainIs(&sb.Status, v1alpha1.SandboxConditionRuntimeInitialized, sb.Generation, now)
}

// HadPoolSetup reports whether a sandbox is in a pool, and its agent-runtime has got a token.
func HadPoolSetup(sb *v1alpha1.Sandbox) bool {
	return sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] != "" && meta.IsStatusConditionTrue(sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized) && v1alpha1.IsInPool(sb)
}

// AwaitsPoolSetup reports whether the agent-runtime of a sandbox of a pool is to get a token
// now: the sandbox would be available otherwise, or will be if a container that was restarted runs on.
func AwaitsPoolSetup(sb *v1alpha1.Sandbox) bool {
	return SetupPending(&sb.Status) && v1alpha1.IsInPool(sb) && sb.DeletionTimestamp == nil && !sb.Spec.Paused &&
		sb.Annotations[v1alpha1.AnnotationLock] == "" &&
		sb.Status.Phase == v1alpha1.SandboxRunning && sb.Status.PodInfo.PodIP != "" &&
		(meta.IsStatusConditionTrue(sb.Status.Conditions, v1alpha1.SandboxConditionReady) || hasRestarted(sb))
}

// hasRestarted reports whether a container of a sandbox was restarted a moment ago.
func hasRestarted(sb *v1alpha1.Sandbox) bool {
	ready := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionReady)
	return ready != nil && ready.Reason == v1alpha1.ReasonContainerRestarted
}

// EndPoolSetup says that the agent-runtime of a sandbox of a pool has the token of an id.
func EndPoolSetup(sb *v1alpha1.Sandbox, id string, now time.Time) {
	if sb.Annotations == nil {
		sb.Annotations = map[string]string{}
	}
	sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] = id
	EndSetupAgain(&sb.Status, nil, now)
}

// DropPoolSetup says that the agent-runtime of a sandbox of a pool gets no token there: the
// sandbox has none, or none can be reached and there is no pod.
func DropPoolSetup(sb *v1alpha1.Sandbox) {
	meta.RemoveStatusCondition(&sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
}

// ReportPoolSetup reports in the condition why the agent-runtime of a sandbox of a pool has no token yet.
func ReportPoolSetup(sb *v1alpha1.Sandbox, why string) {
	if c := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized); c != nil {
		c.Message = truncate(why, maxSetupMessage)
	}
}

// FailPoolSetup makes a sandbox of a pool Failed, so that its pool replaces it.
func FailPoolSetup(sb *v1alpha1.Sandbox, why string, now time.Time) {
	why = truncate(why, maxSetupMessage)
	EndSetupAgain(&sb.Status, &SetupError{
		Condition: v1alpha1.SandboxConditionRuntimeInitialized, Reason: v1alpha1.ReasonRuntimeInitFailed, Message: why,
	}, now)
	sb.Status.Phase, sb.Status.Message = v1alpha1.SandboxFailed, why
	sb.Status.SandboxIP, sb.Status.PodInfo.PodIP = "", "" // as of each sandbox that has ended
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRuntimeInitFailed, Message: why,
		ObservedGeneration: sb.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), // as it is stored
	})
}

// HasToken reports whether the agent-runtime of a sandbox that a claim holds has an access
// token, if the sandbox has an agent-runtime: the claim sets one, or the pool has.
func HasToken(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) bool {
	return SetsUpRuntime(claim) || sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] != ""
}
