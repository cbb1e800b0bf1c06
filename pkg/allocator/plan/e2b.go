// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"

// e2bSandbox is the feature of claims that the gateway of the E2B API makes.
type e2bSandbox struct{}

var _ marker = e2bSandbox{}

func (e2bSandbox) applies(s *State, _ []Candidate) bool { return v1alpha1.IsE2BClaim(s.Claim) }

// mark writes the id by which the E2B API finds the sandbox.
func (e2bSandbox) mark(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox, _ string) {
	if id := v1alpha1.E2BSandboxID(claim.Namespace, claim.Name); v1alpha1.HasE2BSandboxID(claim.Name) && len(id) <= maxLabel {
		sb.Labels[v1alpha1.LabelSandboxID] = id
	}
}

// maxLabel is how many bytes the value of a label may have.
const maxLabel = 63
