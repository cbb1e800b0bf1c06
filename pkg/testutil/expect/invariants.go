// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/findings"
	"github.com/sandlot-io/sandlot/pkg/storecheck/invariants"
)

// Invariants checks what always holds for the claims and sandboxes of a namespace (see
// package invariants), and returns them. Nothing of them may have been deleted: each
// sandbox that a claim lists is there, and so is each claim that a sandbox names.
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
	state := &invariants.State{Partial: true} // there are no sets in it
	there, owners := map[types.UID]bool{}, map[string]bool{}
	for i := range sandboxes.Items {
		state.AddSandbox(&sandboxes.Items[i])
		there[sandboxes.Items[i].UID] = true
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		state.AddClaim(claim)
		owners[string(claim.UID)] = true
		for _, listed := range claim.Status.Sandboxes {
			if !there[listed.UID] {
				t.Errorf("claim %s lists sandbox %s (%s), which is not there", claim.Name, listed.Name, listed.UID)
			}
		}
	}
	for _, sandbox := range sandboxes.Items {
		if owner := sandbox.Annotations[v1alpha1.AnnotationOwner]; owner != "" && !owners[owner] && !v1alpha1.IsReservedFailed(&sandbox) {
			t.Errorf("sandbox %s names owner %s, which is no claim", sandbox.Name, owner)
		}
	}
	state.Judge(time.Now(), func(f findings.Finding) { t.Errorf("%s %s: %s", f.Level, f.Check, f.Message) })
	return claims.Items, sandboxes.Items
}
