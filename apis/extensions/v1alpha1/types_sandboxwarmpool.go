// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
)

// SandboxWarmPool keeps a pool of sandboxes that are started before anyone asks for them,
// and refills it as they are claimed.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxWarmPool struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. The name has at most 63 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how large the pool is and what its sandboxes look like.
	// +required
	Spec SandboxWarmPoolSpec `json:"spec"`

	// status says how much of the pool is there.
	// +optional
	Status v1beta1.SandboxWarmPoolStatus `json:"status,omitempty,omitzero"`
}

// SandboxWarmPoolSpec says how large a pool is and what its sandboxes look like.
type SandboxWarmPoolSpec struct {
	// replicas is the number of unused sandboxes to keep. Claimed ones do not count. At
	// least 0.
	// +required
	Replicas *int32 `json:"replicas,omitempty"`

	// sandboxTemplateRef is the SandboxTemplate that the sandboxes are made from.
	// +required
	SandboxTemplateRef v1beta1.SandboxTemplateRef `json:"sandboxTemplateRef"`

	// updateStrategy says what becomes of sandboxes of an older template.
	// +optional
	UpdateStrategy v1beta1.UpdateStrategy `json:"updateStrategy,omitempty,omitzero"`
}

// SandboxWarmPoolList is a list of pools.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxWarmPoolList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the pools.
	Items []SandboxWarmPool `json:"items"`
}
