// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
)

// SandboxClaim asks for one sandbox. The request that creates it binds it, in one
// transaction with the claim itself, if a pool has one. A sandbox that is gone is replaced.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxClaim struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. The name has at most 63 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says of which template a sandbox is wanted, and for how long.
	// +required
	Spec SandboxClaimSpec `json:"spec"`

	// status says which sandbox it is.
	// +optional
	Status v1beta1.SandboxClaimStatus `json:"status,omitempty,omitzero"`
}

// SandboxClaimSpec says of which template a sandbox is wanted, and for how long.
type SandboxClaimSpec struct {
	// sandboxTemplateRef is the SandboxTemplate to claim by.
	// +required
	SandboxTemplateRef v1beta1.SandboxTemplateRef `json:"sandboxTemplateRef"`

	// warmpool says which pools of the template may serve the claim: default (all of them),
	// none (the sandbox is made for the claim), or the name of one SandboxWarmPool. Default
	// "default".
	// +optional
	WarmPool string `json:"warmpool,omitempty"`

	// lifecycle says when the claim ends. Unset means never.
	// +optional
	Lifecycle *v1beta1.Lifecycle `json:"lifecycle,omitempty"`

	// additionalPodMetadata is put on the pod of the sandbox. Labels need a domain that the
	// server allows. A key that the pod template sets to another value is refused.
	// +optional
	AdditionalPodMetadata *v1beta1.PodMetadata `json:"additionalPodMetadata,omitempty"`

	// env are environment variables for the containers of the pod, as far as the
	// envVarsInjectionPolicy of the template allows. A running pod cannot take them, so
	// the sandbox is made for the claim. At most 256, of 32 KiB in all.
	// +optional
	// +listType=atomic
	Env []v1beta1.EnvVar `json:"env,omitempty"`
}

// SandboxClaimList is a list of claims.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxClaimList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the claims.
	Items []SandboxClaim `json:"items"`
}
