// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agents "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Continuous reports whether a claim has a sandbox for as long as it exists, as the claims
// of agent-sandbox do: it never times out, is Ready as its sandbox is, gets another one
// when that is gone, and says what is wrong with it in its condition Ready instead of
// being refused.
func Continuous(claim *v1alpha1.SandboxClaim) bool { return v1alpha1.OfAgentSandbox(claim) }

// The functions below say which rule a caller follows that differs for claims that are Continuous.

// TimesOut reports whether the sandboxes of a claim fail that are not ready in time, and if the
// claim ends with what it has when its claimTimeout is over.
func TimesOut(claim *v1alpha1.SandboxClaim) bool { return !Continuous(claim) }

// ReplacesFailed reports whether a claim gives up sandboxes that fail while they are prepared and
// gets others, as long as not too many have failed. The sandbox of another claim is the claim's
// however it is, and a new one is made only after some time.
func ReplacesFailed(claim *v1alpha1.SandboxClaim) bool { return !Continuous(claim) }

// EndsRefused reports whether a claim is not created, or ends, if it asks for what it cannot have.
// Another claim is stored, says in its condition Ready what is wrong, and continues when that is
// corrected.
func EndsRefused(claim *v1alpha1.SandboxClaim) bool { return !Continuous(claim) }

// IsRebound reports whether a claim that has completed gets another sandbox when its own is gone.
func IsRebound(claim *v1alpha1.SandboxClaim) bool { return Continuous(claim) }

// SandboxName is the name of a sandbox that is made for a claim; empty if any will do.
func SandboxName(claim *v1alpha1.SandboxClaim) string {
	if Continuous(claim) {
		return claim.Name
	}
	return ""
}

// Reasons of the condition Ready of a claim of agent-sandbox. Clients compare them.
const (
	// AgentReasonTemplateNotFound goes with a template, of the claim or of its pool, that
	// is not there.
	AgentReasonTemplateNotFound = "TemplateNotFound"
	// AgentReasonWarmPoolNotFound goes with a pool that is not there.
	AgentReasonWarmPoolNotFound = "WarmPoolNotFound"
	// AgentReasonVolumeClaimTemplates goes with volumeClaimTemplates that the template does
	// not take.
	AgentReasonVolumeClaimTemplates = "VolumeClaimTemplatesError"
	// AgentReasonError goes with everything else that is wrong.
	AgentReasonError = agents.ReasonReconcilerError
)

// AgentRefuses reports whether a reason of Ready says that a claim gets no sandbox as it is.
func AgentRefuses(reason string) bool {
	switch reason {
	case AgentReasonTemplateNotFound, AgentReasonWarmPoolNotFound, AgentReasonVolumeClaimTemplates,
		v1alpha1.ReasonInvalidMetadata, v1alpha1.ReasonEnvVarsInjectionRejected, AgentReasonError:
		return true
	}
	return false
}

// AgentWarmPoolNotFound is the message of Ready for a pool that is not there.
func AgentWarmPoolNotFound(name string) string {
	return fmt.Sprintf("SandboxWarmPool %q not found", name)
}

// AgentTemplateNotFound is the message of Ready for a template that is not there.
func AgentTemplateNotFound(name string) string {
	return fmt.Sprintf("SandboxTemplate %q not found", name)
}

// AgentError is the message of Ready for what else is wrong.
func AgentError(why string) string { return "Error seen: " + why }

// agentSandboxExpired is the message of Ready of a claim whose sandbox has a shutdownTime
// of its own, which has come.
const agentSandboxExpired = "Underlying Sandbox resource has expired independently of the Claim."

// AgentFinished is the condition Finished of a claim of agent-sandbox: that of its sandbox,
// or nil if that has not ended or is gone.
func AgentFinished(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) *metav1.Condition {
	if sb == nil {
		return nil
	}
	finished := agents.FinishedOf(sb)
	if finished != nil {
		finished.Type, finished.ObservedGeneration = v1alpha1.ClaimConditionFinished, claim.Generation
	}
	return finished
}

// SaysMissing reports whether a claim that is bound for as long as it exists says that its
// sandbox is gone.
func SaysMissing(claim *v1alpha1.SandboxClaim) bool {
	ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionReady)
	return Continuous(claim) && ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == v1alpha1.ReasonSandboxMissing
}

// AgentReady is the condition Ready of a claim of agent-sandbox: that of its sandbox, what is
// wrong with the metadata that the claim brings it, or that the claim has none. sb is nil if it has none. The time of its transition is
// the sandbox's, or empty.
func AgentReady(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) metav1.Condition {
	ready := metav1.Condition{
		Type: v1alpha1.ClaimConditionReady, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonSandboxMissing, Message: v1alpha1.SandboxMissingMessage,
	}
	if sb != nil {
		ready = agents.ReadyOf(sb)
		ready.Type = v1alpha1.ClaimConditionReady
		if ready.Reason == v1alpha1.ReasonSandboxExpired {
			ready.Message = agentSandboxExpired
		}
		if bad := agentMetadata(claim); bad != nil {
			ready = *bad
		}
	}
	ready.ObservedGeneration = claim.Generation
	return ready
}

// agentMetadata is the condition Ready of a claim that has a sandbox, and that was edited to
// metadata which its pod does not get; nil if it was not. agent-sandbox looks at the metadata
// before it looks at the sandbox.
func agentMetadata(claim *v1alpha1.SandboxClaim) *metav1.Condition {
	synced := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionMetadataSynced)
	if synced == nil || synced.Status != metav1.ConditionFalse {
		return nil
	}
	bad := *synced
	bad.Type = v1alpha1.ClaimConditionReady
	if bad.Reason != v1alpha1.ReasonInvalidMetadata {
		bad.Reason, bad.Message = AgentReasonError, AgentError(synced.Message)
	}
	return &bad
}

// AgentSandbox is the name of the sandbox of a claim of agent-sandbox, which may not count
// yet; empty if it has none.
func AgentSandbox(claim *v1alpha1.SandboxClaim) string {
	if listed := claim.Status.Sandboxes; len(listed) > 0 {
		return listed[0].Name
	}
	return cmp.Or(claim.Annotations[v1alpha1.AgentAnnotationSandboxName], claim.Labels[v1alpha1.AgentAnnotationSandboxName])
}
