// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agents "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
)

// SandboxTemplate says what sandboxes look like, and what claims may add to them.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what sandboxes look like, and what claims may add to them.
	// +required
	Spec SandboxTemplateSpec `json:"spec"`
}

// SandboxTemplateSpec says what sandboxes look like, and what claims may add to them.
type SandboxTemplateSpec struct {
	agents.SandboxBlueprint `json:",inline"`

	// networkPolicy is the traffic that sandboxes of this template may have. Unset is the
	// secure default: from the router in, to public addresses out.
	// +optional
	NetworkPolicy *NetworkPolicySpec `json:"networkPolicy,omitempty"`

	// networkPolicyManagement is Managed for a NetworkPolicy that is made for the template,
	// or Unmanaged for none. Default Managed.
	// +optional
	NetworkPolicyManagement NetworkPolicyManagement `json:"networkPolicyManagement,omitempty"`

	// envVarsInjectionPolicy says what env of claims may do: Allowed adds variables,
	// Overrides also replaces those of the template, Disallowed refuses them. Default
	// Disallowed.
	// +optional
	EnvVarsInjectionPolicy InjectionPolicy `json:"envVarsInjectionPolicy,omitempty"`

	// volumeClaimTemplatesPolicy says what volumeClaimTemplates of claims may do: Allowed
	// adds volumes, Overrides also replaces those of the template, Disallowed refuses them.
	// Default Disallowed.
	// +optional
	VolumeClaimTemplatesPolicy InjectionPolicy `json:"volumeClaimTemplatesPolicy,omitempty"`
}

// NetworkPolicySpec is the traffic that sandboxes of a template may have, in the rules of a
// NetworkPolicy.
type NetworkPolicySpec struct {
	// ingress are the kinds of incoming traffic that are allowed. Empty denies all.
	// +optional
	// +listType=atomic
	Ingress []networkingv1.NetworkPolicyIngressRule `json:"ingress,omitempty"`

	// egress are the kinds of outgoing traffic that are allowed. Empty denies all.
	// +optional
	// +listType=atomic
	Egress []networkingv1.NetworkPolicyEgressRule `json:"egress,omitempty"`
}

// NetworkPolicyManagement says who keeps the NetworkPolicy of a template.
// +enum
type NetworkPolicyManagement string

const (
	// NetworkPolicyManaged makes a NetworkPolicy and keeps it right. It is the default.
	NetworkPolicyManaged NetworkPolicyManagement = "Managed"
	// NetworkPolicyUnmanaged leaves networking to others.
	NetworkPolicyUnmanaged NetworkPolicyManagement = "Unmanaged"
)

// InjectionPolicy says what a claim may add to what its template says.
// +enum
type InjectionPolicy string

const (
	// InjectionDisallowed refuses what a claim adds. It is the default.
	InjectionDisallowed InjectionPolicy = "Disallowed"
	// InjectionAllowed lets claims add what the template does not have.
	InjectionAllowed InjectionPolicy = "Allowed"
	// InjectionOverrides lets claims replace what the template has, too.
	InjectionOverrides InjectionPolicy = "Overrides"
)

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
