// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
)

// Invariants checks what always holds for the claims and sandboxes of a namespace, and
// returns them:
//
//  1. A sandbox is bound to one claim at most, and that claim is there.
//  2. A claim has no more sandboxes than it asked for, and as many as it says. Once it is
//     Completed, these are all that name it, and all of them or none if it asked for that.
//  3. No sandbox is locked without a claim.
func Invariants(t testing.TB, agents typed.AgentsV1alpha1Interface, namespace string) ([]v1alpha1.SandboxClaim, []v1alpha1.Sandbox) {
	t.Helper()
	claims, err := agents.SandboxClaims(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sandboxes, err := agents.Sandboxes(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	byOwner := map[string]map[string]*v1alpha1.Sandbox{}
	for i := range sandboxes.Items {
		sandbox := &sandboxes.Items[i]
		owner, lock := sandbox.Annotations[v1alpha1.AnnotationOwner], sandbox.Annotations[v1alpha1.AnnotationLock]
		if (owner != "") != (lock != "") && sandbox.Spec.ShutdownTime == nil {
			t.Errorf("sandbox %s: owner %q, lock %q", sandbox.Name, owner, lock)
		}
		if owner == "" || sandbox.Labels[v1alpha1.LabelReservedFailedSandbox] == "true" {
			continue
		}
		if byOwner[owner] == nil {
			byOwner[owner] = map[string]*v1alpha1.Sandbox{}
		}
		byOwner[owner][sandbox.Name] = sandbox
	}
	listedBy := map[string]string{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		its := byOwner[string(claim.UID)]
		delete(byOwner, string(claim.UID))
		checkClaim(t, claim, its)
		for _, listed := range claim.Status.Sandboxes {
			if other, twice := listedBy[listed.Name]; twice {
				t.Errorf("sandbox %s is listed by claims %s and %s", listed.Name, other, claim.Name)
			}
			listedBy[listed.Name] = claim.Name
		}
	}
	for owner, its := range byOwner {
		t.Errorf("%d sandboxes name owner %s, which is no claim", len(its), owner)
	}
	return claims.Items, sandboxes.Items
}

// checkClaim checks a claim against the sandboxes that name it as their owner.
func checkClaim(t testing.TB, claim *v1alpha1.SandboxClaim, its map[string]*v1alpha1.Sandbox) {
	t.Helper()
	status, want := &claim.Status, *claim.Spec.Replicas
	if int(status.ClaimedReplicas) != len(status.Sandboxes) || status.ClaimedReplicas > want {
		t.Errorf("claim %s of %d: claimedReplicas is %d, and it lists %d", claim.Name, want, status.ClaimedReplicas, len(status.Sandboxes))
	}
	if status.Phase == v1alpha1.SandboxClaimPhaseCompleted {
		if len(its) != len(status.Sandboxes) {
			t.Errorf("claim %s: lists %d sandboxes, but %d name it as their owner", claim.Name, len(status.Sandboxes), len(its))
		}
		if claim.Spec.Allocation == v1alpha1.AllocationAllOrNothing && status.ClaimedReplicas != 0 && status.ClaimedReplicas != want {
			t.Errorf("claim %s is to have all or nothing and has %d of %d", claim.Name, status.ClaimedReplicas, want)
		}
	}
	for _, listed := range status.Sandboxes {
		if sandbox := its[listed.Name]; sandbox == nil || sandbox.Labels[v1alpha1.LabelClaimName] != claim.Name {
			t.Errorf("claim %s (%s) lists sandbox %s, which does not name it", claim.Name, claim.UID, listed.Name)
		} else if sandbox.UID != listed.UID {
			t.Errorf("claim %s lists sandbox %s with the UID %q, which has %q", claim.Name, listed.Name, listed.UID, sandbox.UID)
		}
	}
}
