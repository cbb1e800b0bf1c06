// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestRecycledSandboxComesBack: a claim that gets a sandbox again, which its user gave back
// while the claim went on, lists it once. What it had before still counts, and so the claim
// ends.
func TestRecycledSandboxComesBack(t *testing.T) {
	s := stateOf(of(2), lists(0, "a"))
	again := stocked("a")
	again.Status.RecycledCount = 1
	p := s.next(t, Offer{Candidates: []Candidate{{Sandbox: again, Template: again.Spec.Template, Lock: "lock"}}}, "", "")
	got := p.Claim.Status
	if got.ClaimedReplicas != 2 || len(got.Sandboxes) != 1 || got.Sandboxes[0].UID != again.UID || !p.Ends() {
		t.Errorf("the claim has %+v", got)
	}
	// It is the same where the sandbox had a step left.
	s.holds(t, "a", func(sb *v1alpha1.Sandbox) { sb.Status.RecycledCount = 1 })
	if p := s.next(t, Offer{}, "", ""); p.Claim.Status.ClaimedReplicas != 2 || len(p.Claim.Status.Sandboxes) != 1 {
		t.Errorf("after its start the claim has %+v", p.Claim.Status)
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
