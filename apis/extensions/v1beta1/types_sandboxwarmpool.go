// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SandboxWarmPool keeps sandboxes of a template started before anyone asks for them.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxWarmPool struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. The name has at most 63 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how large the pool is, and of which template.
	// +required
	Spec SandboxWarmPoolSpec `json:"spec"`

	// status says how much of the pool is there.
	// +optional
	Status SandboxWarmPoolStatus `json:"status,omitempty,omitzero"`
}

// SandboxWarmPoolSpec says how large a pool is, and of which template.
type SandboxWarmPoolSpec struct {
	// replicas is how many sandboxes the pool keeps, at least 0. Default 1.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// sandboxTemplateRef names the SandboxTemplate that the sandboxes are made from.
	// +required
	SandboxTemplateRef SandboxTemplateRef `json:"sandboxTemplateRef"`

	// updateStrategy says what happens to sandboxes of an older template.
	// +optional
	UpdateStrategy UpdateStrategy `json:"updateStrategy,omitempty,omitzero"`

	// claimDefaults are defaults for the claims that this pool serves. They are copied to a
	// claim when it gets its sandbox, and only to fields that the claim does not set. A claim
	// that has its sandbox already is not changed.
	// +optional
	ClaimDefaults *ClaimDefaults `json:"claimDefaults,omitempty"`
}

// ClaimDefaults are defaults for the claims that a pool serves.
type ClaimDefaults struct {
	// lifecycle is the lifecycle of claims that set none. It must not set shutdownTime: claims
	// that are created after that time would expire at once.
	// +optional
	Lifecycle *Lifecycle `json:"lifecycle,omitempty"`
}

// UpdateStrategy says what happens to sandboxes of an older template.
type UpdateStrategy struct {
	// type is OnReplenish, which keeps them until they are claimed or deleted, or Recreate,
	// which deletes them at once. Default OnReplenish. RollingUpdate, of pools made in
	// agents.kruise.io, replaces them step by step.
	// +optional
	Type UpdateStrategyType `json:"type,omitempty"`
}

// UpdateStrategyType says what happens to sandboxes of an older template.
// +enum
type UpdateStrategyType string

const (
	// UpdateRecreate deletes them at once.
	UpdateRecreate UpdateStrategyType = "Recreate"
	// UpdateOnReplenish keeps them until they are claimed or deleted. It is the default.
	UpdateOnReplenish UpdateStrategyType = "OnReplenish"
	// UpdateRolling replaces them step by step, as of a SandboxSet.
	UpdateRolling UpdateStrategyType = "RollingUpdate"
)

// SandboxWarmPoolStatus says how much of a pool is there.
type SandboxWarmPoolStatus struct {
	// replicas is how many sandboxes the pool has, ready or not.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is how many of them can be claimed.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// selector selects the sandboxes of the pool.
	// +optional
	Selector string `json:"selector,omitempty"`

	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the observed state of the pool. Available is false while no sandbox can
	// be claimed, and TemplateResolved is false while the template cannot be used.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SandboxWarmPoolList is a list of warm pools.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxWarmPoolList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the warm pools.
	Items []SandboxWarmPool `json:"items"`
}
