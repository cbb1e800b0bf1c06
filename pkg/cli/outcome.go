// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// What a claim has come to, in a word. One that has all its sandboxes, and is not ready,
// has the reason of that instead of complete.
const (
	stateWaiting  = "Waiting"
	stateComplete = "Complete"
	statePartial  = "Partial"
	stateNone     = "None"
)

// wanted is how many sandboxes a claim asks for.
func wanted(claim *v1alpha1.SandboxClaim) int32 {
	return ptr.Deref(claim.Spec.Replicas, v1alpha1.DefaultClaimReplicas)
}

// progress is how many sandboxes a claim has, of how many.
func progress(claim *v1alpha1.SandboxClaim) string {
	return fmt.Sprintf("%d/%d", claim.Status.ClaimedReplicas, wanted(claim))
}

// stateOf is what a claim has come to.
func stateOf(claim *v1alpha1.SandboxClaim) string {
	switch {
	case claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted:
		return stateWaiting
	case claim.Status.ClaimedReplicas == 0:
		return stateNone
	case claim.Status.ClaimedReplicas < wanted(claim):
		return statePartial
	}
	ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionReady)
	if ready != nil && ready.Status == "False" {
		return ready.Reason
	}
	return stateComplete
}

// outcome reports whether a claim has come to an end for the command that waits for it: it
// has all its sandboxes and they are ready, or it gets no others. An error says why it is
// not what was asked for.
func outcome(claim *v1alpha1.SandboxClaim) (ended bool, err error) {
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		return false, nil
	}
	if claim.Status.ClaimedReplicas < wanted(claim) {
		return true, fmt.Errorf("sandboxclaim %s/%s ended with %s sandboxes: %s",
			claim.Namespace, claim.Name, progress(claim), claim.Status.Message)
	}
	return meta.IsStatusConditionTrue(claim.Status.Conditions, v1alpha1.ClaimConditionReady), nil
}

// words is what a claim says of itself.
func words(claim *v1alpha1.SandboxClaim) string {
	ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionReady)
	if claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted && ready != nil && ready.Status == "False" {
		return ready.Message
	}
	return claim.Status.Message
}

// poolOf is the name of what a claim claims from.
func poolOf(claim *v1alpha1.SandboxClaim) string {
	if ref := claim.Spec.SandboxTemplateRef; claim.Spec.TemplateName == "" && ref != nil {
		return ref.Name
	}
	return claim.Spec.TemplateName
}
