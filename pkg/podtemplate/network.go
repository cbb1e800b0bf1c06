// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"

// HasNetworkPolicy says whether a template has a NetworkPolicy of its own, which
// selects pods by the template's name. OpenKruise's templates have none of the
// fields, and mean none. Those that hold revisions never have one: their pods are
// labelled with the template that the set refers to.
func HasNetworkPolicy(template *v1alpha1.SandboxTemplate) bool {
	if IsRevision(template) {
		return false
	}
	switch template.Spec.NetworkPolicyManagement {
	case v1alpha1.NetworkPolicyManaged:
		return true
	case "":
		return template.Spec.NetworkPolicy != nil
	default:
		return false
	}
}
