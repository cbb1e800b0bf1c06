// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// DefaultReplicas is the default of a warm pool's replicas.
const DefaultReplicas int32 = 1

// SetDefaults_SandboxClaim fills in what a claim left out, and leaves out what says nothing:
// typed clients of the one form write the reference of the other one with an empty name,
// and warmpool is about a template.
func SetDefaults_SandboxClaim(claim *SandboxClaim) {
	spec := &claim.Spec
	switch pool, template := spec.WarmPoolRef, spec.SandboxTemplateRef; {
	case pool == nil || template == nil:
	case pool.Name == "" && template.Name != "":
		spec.WarmPoolRef = nil
	case pool.Name != "" && template.Name == "":
		spec.SandboxTemplateRef = nil
	}
	switch {
	case spec.SandboxTemplateRef == nil:
		spec.WarmPool = ""
	case spec.WarmPoolRef == nil && spec.WarmPool == "":
		spec.WarmPool = WarmPoolDefault
	}
}

// SetDefaults_Lifecycle fills in what a lifecycle left out. A claim without a lifecycle gets
// none.
func SetDefaults_Lifecycle(lifecycle *Lifecycle) {
	if lifecycle.ShutdownPolicy == "" {
		lifecycle.ShutdownPolicy = ShutdownRetain
	}
}

// SetDefaults_SandboxTemplate fills in what a template left out.
func SetDefaults_SandboxTemplate(template *SandboxTemplate) {
	spec := &template.Spec
	if spec.NetworkPolicyManagement == "" {
		spec.NetworkPolicyManagement = NetworkPolicyManaged
	}
	if spec.EnvVarsInjectionPolicy == "" {
		spec.EnvVarsInjectionPolicy = InjectionDisallowed
	}
	if spec.VolumeClaimTemplatesPolicy == "" {
		spec.VolumeClaimTemplatesPolicy = InjectionDisallowed
	}
}

// SetDefaults_SandboxWarmPool fills in what a warm pool left out.
func SetDefaults_SandboxWarmPool(pool *SandboxWarmPool) {
	if pool.Spec.Replicas == nil {
		replicas := DefaultReplicas
		pool.Spec.Replicas = &replicas
	}
	if pool.Spec.UpdateStrategy.Type == "" {
		pool.Spec.UpdateStrategy.Type = UpdateOnReplenish
	}
}
