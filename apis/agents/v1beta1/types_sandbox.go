// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Sandbox is a pod with a stable name, volumes and network identity of its own, which can
// be suspended and resumed.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Sandbox struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what the pod of the sandbox looks like, and if it runs.
	// +required
	Spec SandboxSpec `json:"spec"`

	// status says how the sandbox is.
	// +optional
	Status SandboxStatus `json:"status,omitempty,omitzero"`
}

// SandboxBlueprint is what a Sandbox and a SandboxTemplate have in common.
type SandboxBlueprint struct {
	// podTemplate is the pod template (metadata and spec) of the sandbox's pod. Fields that
	// this server does not know are kept. A sandbox of a pool shows the pod template that the
	// pool stores for all of its sandboxes.
	// +optional
	PodTemplate *runtime.RawExtension `json:"podTemplate,omitempty"`

	// volumeClaimTemplates are PersistentVolumeClaims made for the sandbox, under the name
	// <template name>-<sandbox name>. Immutable on a Sandbox.
	// +optional
	// +listType=atomic
	VolumeClaimTemplates []runtime.RawExtension `json:"volumeClaimTemplates,omitempty"`

	// service says whether the sandbox has a headless Service of its name: true makes one,
	// false removes it, unset makes none and keeps one that is there.
	// +optional
	Service *bool `json:"service,omitempty"`
}

// SandboxSpec says what the pod of the sandbox looks like, and if it runs.
type SandboxSpec struct {
	SandboxBlueprint `json:",inline"`

	// shutdownTime is when the sandbox expires. Unset is never.
	// +optional
	ShutdownTime *metav1.Time `json:"shutdownTime,omitempty"`

	// shutdownPolicy says what happens then: Delete deletes the Sandbox, Retain its pod
	// and Service alone. Default Retain.
	// +optional
	ShutdownPolicy ShutdownPolicy `json:"shutdownPolicy,omitempty"`

	// operatingMode is Running, or Suspended for a sandbox without a pod, of which the
	// volumes are kept. Default Running.
	// +optional
	OperatingMode OperatingMode `json:"operatingMode,omitempty"`
}

// ShutdownPolicy says what happens to a sandbox that has expired.
// +enum
type ShutdownPolicy string

const (
	// ShutdownDelete deletes the Sandbox.
	ShutdownDelete ShutdownPolicy = "Delete"
	// ShutdownRetain keeps the Sandbox, and deletes its pod and its Service. It is the
	// default.
	ShutdownRetain ShutdownPolicy = "Retain"
)

// OperatingMode says whether a sandbox runs.
// +enum
type OperatingMode string

const (
	// OperatingModeRunning is of a sandbox with a pod. It is the default.
	OperatingModeRunning OperatingMode = "Running"
	// OperatingModeSuspended is of a sandbox without a pod.
	OperatingModeSuspended OperatingMode = "Suspended"
)

// SandboxStatus says how a sandbox is.
type SandboxStatus struct {
	// serviceFQDN is the domain name of the sandbox's Service, as long as it has one.
	// +optional
	ServiceFQDN string `json:"serviceFQDN,omitempty"`

	// service is the name of the sandbox's Service, as long as it has one.
	// +optional
	Service string `json:"service,omitempty"`

	// conditions are Ready, Suspended, PodScheduled and Finished.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// selector selects the sandbox's pod.
	// +optional
	Selector string `json:"selector,omitempty"`

	// podIPs are the addresses of the sandbox's pod, as long as it has one.
	// +optional
	// +listType=atomic
	PodIPs []string `json:"podIPs,omitempty"`

	// nodeName is the node of the sandbox's pod, as long as it has one.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
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
