// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/agents/v1beta1"
)

// Sandbox is one isolated environment: a pod of the same name and what belongs to it.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Sandbox struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the sandbox should be.
	// +required
	Spec SandboxSpec `json:"spec"`

	// status is what the sandbox is.
	// +optional
	Status SandboxStatus `json:"status,omitempty,omitzero"`
}

// SandboxSpec is what a sandbox should be.
type SandboxSpec struct {
	v1beta1.SandboxBlueprint `json:",inline"`

	// shutdownTime is when the sandbox expires. Unset means never.
	// +optional
	ShutdownTime *metav1.Time `json:"shutdownTime,omitempty"`

	// shutdownPolicy says what becomes of the sandbox when it expires. Its pod and its
	// Service are deleted; Delete removes the Sandbox too, and Retain keeps it, with
	// conditions only. Default Retain.
	// +optional
	ShutdownPolicy v1beta1.ShutdownPolicy `json:"shutdownPolicy,omitempty"`

	// replicas is 1 for a sandbox that runs, and 0 for one without a pod, which keeps its
	// volumes and its Service. Default 1.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
}

// SandboxStatus is what a sandbox is.
type SandboxStatus struct {
	v1beta1.SandboxStatus `json:",inline"`

	// replicas is how many pods the sandbox has: 0 or 1.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
}

// SandboxList is a list of sandboxes.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the sandboxes.
	Items []Sandbox `json:"items"`
}
