// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// askedOf is what a claim asks for: a set or a template.
func askedOf(claim *v1alpha1.SandboxClaim) types.NamespacedName {
	name, _ := v1alpha1.AskedOf(claim)
	return types.NamespacedName{Namespace: claim.Namespace, Name: name}
}

// askable are the names by which claims may ask for what a set has: its own, and then
// that of the template that it refers to.
func askable(set *v1alpha1.SandboxSet) []string {
	names := []string{set.Name}
	if template := v1alpha1.SandboxTemplateOf(set); template != "" && template != set.Name {
		names = append(names, template)
	}
	return names
}
