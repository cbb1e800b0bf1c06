// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agents "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	"github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
)

// SandboxTemplate describes a sandbox once, for the SandboxWarmPools and SandboxClaims
// that refer to it.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the sandbox.
	// +required
	Spec SandboxTemplateSpec `json:"spec"`
}

// SandboxTemplateSpec describes a sandbox.
type SandboxTemplateSpec struct {
	agents.SandboxBlueprint `json:",inline"`

	// networkPolicy is the traffic that sandboxes of this template may have. Unset means
	// the secure default: from the namespace of the router in, to public addresses out.
	// +optional
	NetworkPolicy *v1beta1.NetworkPolicySpec `json:"networkPolicy,omitempty"`

	// networkPolicyManagement says who keeps the NetworkPolicy of this template: Managed
	// makes it and keeps it right, Unmanaged leaves networking to others and does not
	// apply networkPolicy. Default Managed.
	// +optional
	NetworkPolicyManagement v1beta1.NetworkPolicyManagement `json:"networkPolicyManagement,omitempty"`

	// envVarsInjectionPolicy says what a claim's env may do to the containers: Allowed adds
	// new variables, Overrides also replaces those of the template, Disallowed refuses such
	// claims. Default Disallowed.
	// +optional
	EnvVarsInjectionPolicy v1beta1.InjectionPolicy `json:"envVarsInjectionPolicy,omitempty"`
}

// SandboxTemplateList is a list of templates.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxTemplateList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the templates.
	Items []SandboxTemplate `json:"items"`
}
