// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// setChoices fills in what a claim of agent-sandbox cannot say: it is for one sandbox, which
// is made if there is none to take, and goes with the claim, which stays until its lifecycle
// ends. Agent-runtimes are left as they are: that API has no word for their tokens, so nothing
// of its users could speak to one that was set up.
func setChoices(claim *v1alpha1.SandboxClaim) {
	spec := &claim.Spec
	replicas, create := v1alpha1.DefaultClaimReplicas, true
	spec.Replicas, spec.CreateOnNoStock = &replicas, &create
	spec.Allocation, spec.OnShortage, spec.ReclaimPolicy = v1alpha1.AllocationBestEffort, v1alpha1.ShortageWait, v1alpha1.ReclaimDelete
	spec.TTLAfterCompleted, spec.SkipInitRuntime = &metav1.Duration{Duration: -time.Second}, true
	v1alpha1.SetDefaults_SandboxClaim(claim)
	if spec.WarmPoolRef != nil && v1alpha1.NeedsFresh(spec) {
		// What it adds may be taken away again, so that the pool can serve it after all.
		spec.WarmPool = v1alpha1.WarmPoolDefault
	}
}

// agentWarning is what the condition Ready of a claim of agent-sandbox says against it; empty
// for one that has its sandbox, or only waits for it.
func agentWarning(claim *v1alpha1.SandboxClaim) string {
	ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue || len(claim.Status.Sandboxes) > 0 {
		return ""
	}
	return plain(ready.Reason + ": " + ready.Message)
}

// keepSource keeps where the sandbox of a claim of agent-sandbox comes from, where an update
// has lost it: clients that know one form of the claim alone drop the other. What the server
// has written of it stays as long as nothing else of it changes.
func keepSource(updated, stored *v1alpha1.SandboxClaimSpec) {
	if updated.WarmPoolRef != nil && updated.WarmPoolRef.Name == "" && stored.SandboxTemplateRef != nil {
		updated.WarmPoolRef = nil
	}
	switch {
	case updated.WarmPoolRef == nil && updated.SandboxTemplateRef == nil && updated.TemplateName == "":
		updated.WarmPoolRef, updated.SandboxTemplateRef, updated.WarmPool = stored.WarmPoolRef, stored.SandboxTemplateRef, stored.WarmPool
		updated.TemplateName = stored.TemplateName
	case updated.WarmPoolRef == nil && stored.WarmPoolRef != nil && stored.SandboxTemplateRef != nil &&
		updated.SandboxTemplateRef != nil && *updated.SandboxTemplateRef == *stored.SandboxTemplateRef && updated.WarmPool == stored.WarmPool:
		updated.WarmPoolRef = stored.WarmPoolRef
	}
}
