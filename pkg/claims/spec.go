// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claims has the rules about claims that the API server and the
// controllers must agree on: what a claim asks for, which SandboxSets may serve
// it, and when a sandbox can be claimed. It is pure: values in, values out.
package claims

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Replicas is how many sandboxes a claim asks for.
func Replicas(claim *v1alpha1.SandboxClaim) int {
	return int(ptr.Deref(claim.Spec.Replicas, v1alpha1.DefaultClaimReplicas))
}

// CreatesOnNoStock reports whether sandboxes are made for a claim where the pool
// has none. An absent value means true; v1alpha1.SetDefaults_SandboxClaim
// fills in false where the other fields say so.
func CreatesOnNoStock(claim *v1alpha1.SandboxClaim) bool {
	return ptr.Deref(claim.Spec.CreateOnNoStock, true)
}

// AllOrNothing reports whether a claim takes all its sandboxes in one transaction
// or none.
func AllOrNothing(claim *v1alpha1.SandboxClaim) bool {
	return claim.Spec.Allocation == v1alpha1.AllocationAllOrNothing
}

// Unfinished reports whether there is still something to do for a claim.
func Unfinished(claim *v1alpha1.SandboxClaim) bool {
	return claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted && claim.DeletionTimestamp == nil
}

// Waiting is for how many sandboxes of pools a claim waits. A claim that makes
// what the pools lack waits for none.
func Waiting(claim *v1alpha1.SandboxClaim) int {
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming || !Unfinished(claim) || CreatesOnNoStock(claim) {
		return 0
	}
	return max(0, Replicas(claim)-int(claim.Status.ClaimedReplicas))
}

// Available reports whether a sandbox can be claimed now: its derived state is
// available (OpenKruise Agents' rules), it is neither locked nor paused, and it
// has an address to hand out. A sandbox that is about to be paused still runs for
// a moment, but not for the claim that would get it.
func Available(sb *v1alpha1.Sandbox, now time.Time) bool {
	state := v1alpha1.StateOf(sb, now)
	return state == v1alpha1.StateAvailable &&
		sb.Annotations[v1alpha1.AnnotationLock] == "" && !sb.Spec.Paused && sb.Status.PodInfo.PodIP != ""
}

// SetsUpRuntime reports whether a claim sets up the agent-runtimes of its sandboxes, where
// they have any.
func SetsUpRuntime(claim *v1alpha1.SandboxClaim) bool { return !claim.Spec.SkipInitRuntime }

// Mounts reports whether a claim has volumes mounted into its sandboxes.
func Mounts(claim *v1alpha1.SandboxClaim) bool { return len(claim.Spec.DynamicVolumesMount) > 0 }
