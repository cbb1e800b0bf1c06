// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
)

// Reasons and actions of events on claims of agent-sandbox, which are that API's.
const (
	// eventSandboxAdopted: the claim has a sandbox from its pool.
	eventSandboxAdopted = "SandboxAdopted"
	actionAdoption      = "Adoption"
	// eventSandboxProvisioned: the claim has a sandbox that was made for it.
	eventSandboxProvisioned = "SandboxProvisioned"
	actionProvisioning      = "Provisioning"
)

// recordBinding records which sandbox a claim of agent-sandbox has got, and reports whether
// there was that to record. A sandbox that was made for its claim has the claim's name.
func recordBinding(recorder report.Recorder, claim *v1alpha1.SandboxClaim) bool {
	name := claims.AgentSandbox(claim)
	if !claims.Continuous(claim) || name == "" || isShort(claim) {
		return false
	}
	if name == claim.Name {
		recorder.Action = actionProvisioning
		recorder.Event(claim, corev1.EventTypeNormal, eventSandboxProvisioned, fmt.Sprintf("Created Sandbox %q", name))
		return true
	}
	recorder.Action = actionAdoption
	recorder.Event(claim, corev1.EventTypeNormal, eventSandboxAdopted, fmt.Sprintf("Adopted warm pool Sandbox %q", name))
	return true
}
