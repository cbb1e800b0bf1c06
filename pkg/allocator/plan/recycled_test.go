// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestRecycledSandboxComesBack: a claim that gets a sandbox again, which its user gave back
// while the claim went on, has it once.
func TestRecycledSandboxComesBack(t *testing.T) {
	s := stateOf(of(2), lists(0, "a"))
	again := stocked("a")
	again.Status.RecycledCount = 1
	p := s.next(t, Offer{Candidates: []Candidate{{Sandbox: again, Template: again.Spec.Template, Lock: "lock"}}}, "", "")
	got := p.Claim.Status
	if got.ClaimedReplicas != 1 || len(got.Sandboxes) != 1 || got.Sandboxes[0].UID != again.UID || got.Phase != v1alpha1.SandboxClaimPhaseClaiming {
		t.Errorf("the claim has %+v", got)
	}
	// Another one completes it.
	if p := s.next(t, Offer{}, "b", ""); p.Claim.Status.ClaimedReplicas != 2 || !p.Ends() {
		t.Errorf("with another one the claim has %+v", p.Claim.Status)
	}
}

// TestRecycledSandboxIsNotTheClaims: what a claim lists stays, as with sandboxes that were
// deleted, and is not replaced.
func TestRecycledSandboxIsNotTheClaims(t *testing.T) {
	s := stateOf(of(2), lists(0, "a"))
	if a := Assess(s); a.Missing() != 1 {
		t.Errorf("misses %d sandboxes, want 1", a.Missing())
	}
}
