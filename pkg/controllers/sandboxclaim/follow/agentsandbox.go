// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agents "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// agentConditions returns what the conditions of a claim of agent-sandbox should be that is
// Completed and has not expired: Ready and Finished are those of its sandbox, in the words
// of that API. Finished goes with the sandbox, because the claim gets another.
func agentConditions(claim *v1alpha1.SandboxClaim, all []member, now time.Time) []metav1.Condition {
	conditions := slices.Clone(claim.Status.Conditions)
	var sandbox *v1alpha1.Sandbox
	for _, m := range all {
		if m.sandbox != nil {
			sandbox = m.sandbox
			break
		}
	}
	set := func(condition metav1.Condition) {
		// The time is the clock of the TTL: it is not in the future, and stays while the
		// status does.
		if condition.LastTransitionTime.IsZero() || condition.LastTransitionTime.After(now) {
			condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second)) // as it is stored
		}
		meta.SetStatusCondition(&conditions, condition)
	}
	set(claims.AgentReady(claim, sandbox))
	if finished := claims.AgentFinished(claim, sandbox); finished != nil {
		set(*finished)
	} else {
		meta.RemoveStatusCondition(&conditions, v1alpha1.ClaimConditionFinished)
	}
	return conditions
}

// agentNews is what a claim of agent-sandbox says of its sandbox beside its address.
func agentNews(sandbox *v1alpha1.Sandbox) string {
	if !v1alpha1.OfAgentSandbox(sandbox) {
		return ""
	}
	ready := agents.ReadyOf(sandbox)
	return fmt.Sprint(ready.Status, ready.Reason, ready.Message, agents.FinishedOf(sandbox) != nil)
}
