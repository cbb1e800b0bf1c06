// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// checkPromises checks, at rest, all that is promised about claims and sandboxes:
//
//  1. expect.Invariants hold.
//  2. What was acknowledged is stored, and what was refused is not.
//  3. Nothing is left half-way: no claim is in progress, no sandbox is half claimed, no
//     pool is short of sandboxes or has too many.
func checkPromises(t *testing.T, client versioned.Interface, clients *storm) {
	t.Helper()
	allClaims, allSandboxes := expect.Invariants(t, client.AgentsV1alpha1(), crashNamespace)
	sandboxes := map[string]*v1alpha1.Sandbox{}
	for i := range allSandboxes {
		sandboxes[allSandboxes[i].Name] = &allSandboxes[i]
	}
	byName := map[string]*v1alpha1.SandboxClaim{}
	boundTo := map[string]string{}
	for i := range allClaims {
		claim := &allClaims[i]
		byName[claim.Name] = claim
		checkClaim(t, claim, sandboxes)
		for _, entry := range claim.Status.Sandboxes {
			boundTo[entry.Name] = claim.Name
		}
	}
	unused := map[string]int32{}
	for name, sandbox := range sandboxes {
		checkSandbox(t, sandbox, boundTo[name])
		if boundTo[name] == "" {
			unused[sandbox.Labels[v1alpha1.LabelSandboxPool]]++
		}
	}
	for pool, replicas := range crashPools {
		if unused[pool] != replicas {
			t.Errorf("set %s has %d unused sandboxes, want %d", pool, unused[pool], replicas)
		}
	}
	for _, answer := range clients.Answers() {
		checkAnswer(t, answer.Claim, byName[answer.Claim.Name])
	}
	for _, refusal := range clients.Refusals() {
		if byName[refusal.Claim] != nil {
			t.Errorf("claim %s was refused, and is stored", refusal.Claim)
		}
	}
	if want := len(clients.Answers()); len(allClaims) != want {
		t.Errorf("%d claims are stored, %d were acknowledged", len(allClaims), want)
	}
}

// checkClaim checks that a claim has ended, with sandboxes that run.
func checkClaim(t *testing.T, claim *v1alpha1.SandboxClaim, sandboxes map[string]*v1alpha1.Sandbox) {
	t.Helper()
	status, want := &claim.Status, *claim.Spec.Replicas
	if status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		t.Errorf("claim %s is %s", claim.Name, status.Phase)
	}
	if short := status.ClaimedReplicas < want; short != meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ClaimConditionTimedOut) {
		t.Errorf("claim %s has %d of %d, and the conditions %+v", claim.Name, status.ClaimedReplicas, want, status.Conditions)
	}
	for _, entry := range status.Sandboxes {
		sandbox := sandboxes[entry.Name]
		switch {
		case sandbox == nil: // which is no invariant
		case sandbox.Status.Phase != v1alpha1.SandboxRunning:
			t.Errorf("claim %s has sandbox %s, which is %s", claim.Name, entry.Name, sandbox.Status.Phase)
		case len(entry.PodIPs) != 1 || entry.PodIPs[0] != sandbox.Status.PodInfo.PodIP:
			t.Errorf("claim %s has sandbox %s at %q, which is at %q", claim.Name, entry.Name, entry.PodIPs, sandbox.Status.PodInfo.PodIP)
		}
	}
}

// checkSandbox checks that a sandbox is either its set's or its claim's.
func checkSandbox(t *testing.T, sandbox *v1alpha1.Sandbox, boundTo string) {
	t.Helper()
	owner := sandbox.Annotations[v1alpha1.AnnotationOwner]
	locked := sandbox.Annotations[v1alpha1.AnnotationLock] != ""
	claimed := sandbox.Labels[v1alpha1.LabelSandboxClaimed] == v1alpha1.ClaimedTrue
	set := metav1.GetControllerOf(sandbox)
	if boundTo != "" {
		if !locked || !claimed || len(sandbox.OwnerReferences) != 0 {
			t.Errorf("sandbox %s is bound to claim %s, but: %+v", sandbox.Name, boundTo, sandbox.ObjectMeta)
		}
		return
	}
	if locked || claimed || owner != "" {
		t.Errorf("no claim names sandbox %s, but it is locked (%t) or claimed (%t) by %q", sandbox.Name, locked, claimed, owner)
	}
	if set == nil || set.Kind != "SandboxSet" {
		t.Errorf("sandbox %s is neither a claim's nor a set's: %+v", sandbox.Name, sandbox.ObjectMeta)
	}
}

// checkAnswer checks that a claim is as it was acknowledged, or, if it was then
// in progress, has gone on from there.
func checkAnswer(t *testing.T, answer, stored *v1alpha1.SandboxClaim) {
	t.Helper()
	switch {
	case stored == nil:
		t.Errorf("claim %s was acknowledged, and is gone", answer.Name)
	case stored.UID != answer.UID:
		t.Errorf("claim %s was acknowledged as %s, and is %s", answer.Name, answer.UID, stored.UID)
	case answer.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted:
		if diff := cmp.Diff(answer, stored); diff != "" {
			t.Errorf("claim %s is not as it was acknowledged (-acknowledged +stored):\n%s", answer.Name, diff)
		}
	default:
		has := map[string]bool{}
		for _, entry := range stored.Status.Sandboxes {
			has[entry.Name] = true
		}
		for _, entry := range answer.Status.Sandboxes {
			if !has[entry.Name] {
				t.Errorf("claim %s was acknowledged with sandbox %s, and has lost it", answer.Name, entry.Name)
			}
		}
	}
}
