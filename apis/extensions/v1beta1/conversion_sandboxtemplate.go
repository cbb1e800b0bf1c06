// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"cmp"

	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TemplateToHub converts a template to what is stored. It shares with in whatever is behind
// a pointer.
func TemplateToHub(in *SandboxTemplate, out *hub.SandboxTemplate) {
	out.ObjectMeta = in.ObjectMeta
	out.Spec = hub.SandboxTemplateSpec{
		EmbeddedSandboxTemplate: hub.EmbeddedSandboxTemplate{
			Template: in.Spec.PodTemplate, VolumeClaimTemplates: in.Spec.VolumeClaimTemplates,
		},
		Service:                    in.Spec.Service,
		NetworkPolicy:              (*hub.SandboxNetworkPolicy)(in.Spec.NetworkPolicy),
		NetworkPolicyManagement:    hub.NetworkPolicyManagement(in.Spec.NetworkPolicyManagement),
		EnvVarsInjectionPolicy:     hub.InjectionPolicy(in.Spec.EnvVarsInjectionPolicy),
		VolumeClaimTemplatesPolicy: hub.InjectionPolicy(in.Spec.VolumeClaimTemplatesPolicy),
	}
}

// TemplateFromHub converts a template from what is stored. It shares with in whatever is
// behind a pointer. A template that refers to another one is shown without a pod template.
func TemplateFromHub(in *hub.SandboxTemplate, out *SandboxTemplate) {
	out.ObjectMeta = in.ObjectMeta
	out.Spec.PodTemplate, out.Spec.VolumeClaimTemplates, out.Spec.Service = in.Spec.Template, in.Spec.VolumeClaimTemplates, in.Spec.Service
	out.Spec.NetworkPolicy = (*NetworkPolicySpec)(in.Spec.NetworkPolicy)
	out.Spec.NetworkPolicyManagement = management(&in.Spec)
	out.Spec.EnvVarsInjectionPolicy = InjectionPolicy(cmp.Or(in.Spec.EnvVarsInjectionPolicy, hub.InjectionDisallowed))
	out.Spec.VolumeClaimTemplatesPolicy = InjectionPolicy(cmp.Or(in.Spec.VolumeClaimTemplatesPolicy, hub.InjectionDisallowed))
}

// management says in the words of this API what an absent value means in the other group,
// where it means another thing than here.
func management(spec *hub.SandboxTemplateSpec) NetworkPolicyManagement {
	switch {
	case spec.NetworkPolicyManagement != "":
		return NetworkPolicyManagement(spec.NetworkPolicyManagement)
	case spec.NetworkPolicy != nil:
		return NetworkPolicyManaged
	}
	return NetworkPolicyUnmanaged
}
