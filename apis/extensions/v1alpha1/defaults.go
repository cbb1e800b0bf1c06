// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"

// SetDefaults_SandboxClaim fills in what a claim left out.
func SetDefaults_SandboxClaim(claim *SandboxClaim) {
	if claim.Spec.WarmPool == "" {
		claim.Spec.WarmPool = v1beta1.WarmPoolDefault
	}
	if claim.Spec.Lifecycle != nil {
		v1beta1.SetDefaults_Lifecycle(claim.Spec.Lifecycle)
	}
}

// SetDefaults_SandboxTemplate fills in what a template left out.
func SetDefaults_SandboxTemplate(template *SandboxTemplate) {
	spec := &template.Spec
	if spec.NetworkPolicyManagement == "" {
		spec.NetworkPolicyManagement = v1beta1.NetworkPolicyManaged
	}
	if spec.EnvVarsInjectionPolicy == "" {
		spec.EnvVarsInjectionPolicy = v1beta1.InjectionDisallowed
	}
}

// SetDefaults_SandboxWarmPool fills in what a pool left out. Its replicas are required.
func SetDefaults_SandboxWarmPool(pool *SandboxWarmPool) {
	if pool.Spec.UpdateStrategy.Type == "" {
		pool.Spec.UpdateStrategy.Type = v1beta1.UpdateOnReplenish
	}
}
