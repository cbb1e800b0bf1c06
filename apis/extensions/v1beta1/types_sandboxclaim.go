// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SandboxClaim asks for one sandbox, and has it for as long as it exists. The request that
// creates it binds it: the answer names the sandbox and its addresses already.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxClaim struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. The name has at most 63 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which sandbox is wanted.
	// +required
	Spec SandboxClaimSpec `json:"spec"`

	// status says which sandbox the claim has.
	// +optional
	Status SandboxClaimStatus `json:"status,omitempty,omitzero"`
}

// SandboxClaimSpec says which sandbox is wanted. warmPoolRef, or sandboxTemplateRef as in
// older versions, is required.
type SandboxClaimSpec struct {
	// warmPoolRef names the SandboxWarmPool that the sandbox is taken from. Where it has
	// none to give, one is made from the template of the pool.
	// +optional
	WarmPoolRef *SandboxWarmPoolRef `json:"warmPoolRef,omitempty"`

	// sandboxTemplateRef claims by SandboxTemplate, as in older versions. With
	// warmPoolRef, the pool has to be one of this template.
	// +optional
	SandboxTemplateRef *SandboxTemplateRef `json:"sandboxTemplateRef,omitempty"`

	// warmpool goes with sandboxTemplateRef, as in older versions: none for a sandbox made
	// for the claim, default for one of any pool of the template, or the name of a pool.
	// Default default, if there is no warmPoolRef. Without sandboxTemplateRef it says
	// nothing, and is dropped.
	// +optional
	WarmPool string `json:"warmpool,omitempty"`

	// lifecycle says when the claim ends, and what happens then. Unset is never.
	// +optional
	Lifecycle *Lifecycle `json:"lifecycle,omitempty"`

	// additionalPodMetadata is put on the pod of the sandbox. Labels need a domain that the
	// server allows. A key that the template sets to another value is a conflict.
	// +optional
	AdditionalPodMetadata *PodMetadata `json:"additionalPodMetadata,omitempty"`

	// env are environment variables, under the envVarsInjectionPolicy of the template. A
	// claim with env has a sandbox made for it. At most 256, of 32 KiB in all.
	// +optional
	// +listType=atomic
	Env []EnvVar `json:"env,omitempty"`

	// volumeClaimTemplates are volumes of the sandbox, under the volumeClaimTemplatesPolicy
	// of the template: metadata with name, labels and annotations, and spec. A claim with
	// volumes has a sandbox made for it. At most 16.
	// +optional
	// +listType=atomic
	VolumeClaimTemplates []runtime.RawExtension `json:"volumeClaimTemplates,omitempty"`
}

const (
	// WarmPoolDefault in warmpool stands for any pool of the template.
	WarmPoolDefault = "default"
	// WarmPoolNone in warmpool asks for a sandbox made for the claim.
	WarmPoolNone = "none"
)

// SandboxWarmPoolRef names a SandboxWarmPool in the namespace of the claim.
type SandboxWarmPoolRef struct {
	// name of the SandboxWarmPool. It need not exist yet.
	Name string `json:"name"`
}

// SandboxTemplateRef names a SandboxTemplate in the same namespace.
type SandboxTemplateRef struct {
	// name of the SandboxTemplate. It need not exist yet.
	Name string `json:"name"`
}

// Lifecycle says when a claim ends, and what happens then.
type Lifecycle struct {
	// shutdownTime is when the claim ends.
	// +optional
	ShutdownTime *metav1.Time `json:"shutdownTime,omitempty"`

	// ttlSecondsAfterFinished is how many seconds after its sandbox has finished the claim
	// ends, at least 0.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// shutdownPolicy says what happens when the claim ends: Delete deletes it,
	// DeleteForeground too, after all that is under it, and Retain deletes its sandbox
	// alone. Default Retain.
	// +optional
	ShutdownPolicy ShutdownPolicy `json:"shutdownPolicy,omitempty"`
}

// ShutdownPolicy says what happens when a claim ends.
// +enum
type ShutdownPolicy string

const (
	// ShutdownDelete deletes the claim, and its sandbox with it.
	ShutdownDelete ShutdownPolicy = "Delete"
	// ShutdownDeleteForeground deletes the claim after its sandbox and its pod.
	ShutdownDeleteForeground ShutdownPolicy = "DeleteForeground"
	// ShutdownRetain keeps the claim and deletes its sandbox. It is the default.
	ShutdownRetain ShutdownPolicy = "Retain"
)

// PodMetadata are labels and annotations of a pod.
type PodMetadata struct {
	// labels of the pod.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// annotations of the pod.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// EnvVar is an environment variable.
type EnvVar struct {
	// name of the variable.
	Name string `json:"name"`

	// value of the variable.
	Value string `json:"value"`

	// containerName is the container that gets it, which may be an init container. Unset is
	// the first container.
	// +optional
	ContainerName string `json:"containerName,omitempty"`
}

// SandboxClaimStatus says which sandbox a claim has.
type SandboxClaimStatus struct {
	// conditions are Ready, and Finished when the sandbox has ended. Each has the generation
	// of the claim that it is about.
	// +optional
	// +listType=atomic
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// sandbox is the sandbox of the claim.
	// +optional
	Sandbox ClaimedSandbox `json:"sandbox,omitempty,omitzero"`
}

// ClaimedSandbox is the sandbox of a claim.
type ClaimedSandbox struct {
	// name of the Sandbox.
	// +optional
	Name string `json:"name,omitempty"`

	// podIPs are the addresses of its pod, as long as it has one.
	// +optional
	// +listType=atomic
	PodIPs []string `json:"podIPs,omitempty"`
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
