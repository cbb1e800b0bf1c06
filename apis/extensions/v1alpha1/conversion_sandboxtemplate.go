// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func templateToHub(in *SandboxTemplate, out *hub.SandboxTemplate) {
	v1beta1.TemplateToHub(&v1beta1.SandboxTemplate{
		ObjectMeta: in.ObjectMeta,
		Spec: v1beta1.SandboxTemplateSpec{
			SandboxBlueprint:        in.Spec.SandboxBlueprint,
			NetworkPolicy:           in.Spec.NetworkPolicy,
			NetworkPolicyManagement: in.Spec.NetworkPolicyManagement,
			EnvVarsInjectionPolicy:  in.Spec.EnvVarsInjectionPolicy,
		},
	}, out)
}

func templateFromHub(in *hub.SandboxTemplate, out *SandboxTemplate) {
	var template v1beta1.SandboxTemplate
	v1beta1.TemplateFromHub(in, &template)
	out.ObjectMeta = template.ObjectMeta
	out.Spec = SandboxTemplateSpec{
		SandboxBlueprint:        template.Spec.SandboxBlueprint,
		NetworkPolicy:           template.Spec.NetworkPolicy,
		NetworkPolicyManagement: template.Spec.NetworkPolicyManagement,
		EnvVarsInjectionPolicy:  template.Spec.EnvVarsInjectionPolicy,
	}
}
