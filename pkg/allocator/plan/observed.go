// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// What agent-sandbox notes on its claims for those who measure: when a claim was seen and
// when it was Ready first, and the trace that it belongs to. All of it is in transactions
// that are written anyway.

// Observe returns a claim that is about to be created with what is noted of that: when
// this server saw it, and the trace of the request, as claims.TraceContext returns it, unless the
// client has named another. A claim of our own API is returned as it is.
func Observe(claim *v1alpha1.SandboxClaim, seen time.Time, trace string) *v1alpha1.SandboxClaim {
	if !v1alpha1.OfAgentSandbox(claim) {
		return claim
	}
	if created := claim.CreationTimestamp.Time; seen.Before(created) {
		seen = created
	}
	observed := *claim
	observed.Annotations = maps.Clone(claim.Annotations)
	observed.Annotations[v1alpha1.AgentAnnotationFirstObserved] = stamp(seen)
	if trace != "" && claims.TraceContext(claim.Annotations[v1alpha1.AgentAnnotationTraceContext]) == "" {
		observed.Annotations[v1alpha1.AgentAnnotationTraceContext] = trace
	}
	return &observed
}

// noteFirstReady notes on a claim that was observed when it is Ready first. before is the
// claim as stored.
func noteFirstReady(claim, before *v1alpha1.SandboxClaim, now time.Time) {
	annotations := claim.Annotations
	if !saysReady(claim) || annotations[v1alpha1.AgentAnnotationFirstObserved] == "" || annotations[v1alpha1.AgentAnnotationFirstReady] != "" {
		return
	}
	at := stamp(now)
	if saysReady(before) {
		at = v1alpha1.AgentTimeUnknown
	}
	claim.Annotations = maps.Clone(annotations)
	claim.Annotations[v1alpha1.AgentAnnotationFirstReady] = at
}

// BecomesReady reports whether the plan makes the claim Ready, as far as is known for the
// first time.
func (p *Plan) BecomesReady() bool {
	return saysReady(p.Claim) && !saysReady(p.before) && p.before.Annotations[v1alpha1.AgentAnnotationFirstReady] == ""
}

func saysReady(claim *v1alpha1.SandboxClaim) bool {
	return meta.IsStatusConditionTrue(claim.Status.Conditions, v1alpha1.ClaimConditionReady)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
