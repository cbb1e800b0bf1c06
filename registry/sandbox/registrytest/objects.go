// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// NewSandbox returns a valid sandbox in Namespace, with defaults.
func NewSandbox(name string) *v1alpha1.Sandbox {
	sandbox := builders.Sandbox(name)
	sandbox.Namespace = Namespace
	return sandbox
}

// NewSandboxSet returns a valid set in Namespace, with defaults.
func NewSandboxSet(name string) *v1alpha1.SandboxSet {
	set := builders.Set(name, 2)
	set.Namespace = Namespace
	v1alpha1.SetDefaults_SandboxSet(set)
	return set
}

// NewSandboxTemplate returns a valid template in Namespace, with defaults.
func NewSandboxTemplate(name string) *v1alpha1.SandboxTemplate {
	template := builders.Template(name)
	template.Namespace = Namespace
	return template
}

// NewSandboxClaim returns a valid claim of one sandbox from the set "pool" in
// Namespace, with defaults.
func NewSandboxClaim(name string) *v1alpha1.SandboxClaim {
	claim := builders.Claim(name, 1)
	claim.Namespace, claim.Spec.CreateOnNoStock = Namespace, nil
	v1alpha1.SetDefaults_SandboxClaim(claim)
	return claim
}
