// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Sandbox is one isolated environment: a pod of the same name and what belongs to
// it. Sandboxes of a SandboxSet are unused until a SandboxClaim takes them.
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Sandbox struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is what the sandbox should be.
	// +optional
	Spec SandboxSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is what the sandbox is.
	// +optional
	Status SandboxStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// SandboxSpec is what a sandbox should be.
type SandboxSpec struct {
	// paused asks for the sandbox to be paused, or, when false again, resumed.
	// Default false.
	// +optional
	Paused bool `json:"paused,omitempty" protobuf:"varint,1,opt,name=paused"`

	// pauseStrategy says how the sandbox is paused.
	// +optional
	PauseStrategy *PauseStrategy `json:"pauseStrategy,omitempty" protobuf:"bytes,2,opt,name=pauseStrategy"`

	// persistentContents says what is to outlive a pause: any of ip, memory and
	// filesystem. It has no effect: a pause of type Stop, the only one that is served,
	// keeps volumeClaimTemplates alone.
	// +optional
	// +listType=atomic
	PersistentContents []string `json:"persistentContents,omitempty" protobuf:"bytes,3,rep,name=persistentContents"`

	// shutdownTime is when the sandbox is deleted, or what shutdownPolicy says happens to
	// it. Unset means never.
	// +optional
	ShutdownTime *metav1.Time `json:"shutdownTime,omitempty" protobuf:"bytes,4,opt,name=shutdownTime"`

	// shutdownPolicy says what happens at shutdownTime: Delete deletes the sandbox, Retain
	// its pod and its Service alone. Empty means Delete, and Retain for a sandbox that was
	// made or claimed in agents.x-k8s.io.
	// +optional
	ShutdownPolicy ShutdownPolicy `json:"shutdownPolicy,omitempty" protobuf:"bytes,5,opt,name=shutdownPolicy,casttype=ShutdownPolicy"`

	// pauseTime is when paused becomes true by itself. Unset means never.
	// +optional
	PauseTime *metav1.Time `json:"pauseTime,omitempty" protobuf:"bytes,6,opt,name=pauseTime"`

	// runtimes are programs to run beside the user's containers: names of entries of
	// the ConfigMap sandbox-injection-config in the namespace of the installation.
	// Immutable.
	// +optional
	// +listType=atomic
	Runtimes []RuntimeConfig `json:"runtimes,omitempty" protobuf:"bytes,7,rep,name=runtimes"`

	// service says whether the sandbox has a headless Service of its name: true makes
	// one, false removes it, unset makes none and keeps one that is there.
	// +optional
	Service *bool `json:"service,omitempty" protobuf:"varint,8,opt,name=service"`

	// lifecycle are commands to run around an upgrade of the sandbox. It is not served:
	// Sandlot does not upgrade sandboxes yet, and refuses objects that set it.
	// +optional
	Lifecycle *SandboxLifecycle `json:"lifecycle,omitempty" protobuf:"bytes,9,opt,name=lifecycle"`

	// upgradePolicy says how a change of the template is carried out that is
	// more than a change in place. Unset means in place only. It is not served:
	// Sandlot does not upgrade sandboxes yet, and refuses objects that set it.
	// +optional
	UpgradePolicy *SandboxUpgradePolicy `json:"upgradePolicy,omitempty" protobuf:"bytes,10,opt,name=upgradePolicy"`

	EmbeddedSandboxTemplate `json:",inline" protobuf:"bytes,11,opt,name=embeddedSandboxTemplate"`
}

// SandboxLifecycle are commands to run around an upgrade of a sandbox.
type SandboxLifecycle struct {
	// preUpgrade runs before the upgrade; when it fails, there is no upgrade.
	// +optional
	PreUpgrade *UpgradeAction `json:"preUpgrade,omitempty" protobuf:"bytes,1,opt,name=preUpgrade"`

	// postUpgrade runs after the upgrade.
	// +optional
	PostUpgrade *UpgradeAction `json:"postUpgrade,omitempty" protobuf:"bytes,2,opt,name=postUpgrade"`
}

// UpgradeAction is a command with a time limit.
type UpgradeAction struct {
	// exec is the command.
	// +optional
	Exec *ExecAction `json:"exec,omitempty" protobuf:"bytes,1,opt,name=exec"`

	// timeoutSeconds is how many seconds the command may take. Default 60.
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty" protobuf:"varint,2,opt,name=timeoutSeconds"`
}

// ExecAction is a command to run in the first container.
type ExecAction struct {
	// command is the program and its arguments. It is not run in a shell.
	// +optional
	// +listType=atomic
	Command []string `json:"command,omitempty" protobuf:"bytes,1,rep,name=command"`
}

// SandboxUpgradePolicy says how a sandbox is upgraded.
type SandboxUpgradePolicy struct {
	// type is Recreate (a new pod) or CheckpointRestore (a new pod from a
	// checkpoint of the old). Empty means in-place updates only.
	// +optional
	Type SandboxUpgradePolicyType `json:"type,omitempty" protobuf:"bytes,1,opt,name=type,casttype=SandboxUpgradePolicyType"`
}

// SandboxUpgradePolicyType is a way to upgrade a sandbox.
// +enum
type SandboxUpgradePolicyType string

const (
	// SandboxUpgradeRecreate makes a new pod.
	SandboxUpgradeRecreate SandboxUpgradePolicyType = "Recreate"
	// SandboxUpgradeCheckpointRestore makes a new pod from a checkpoint of the old.
	SandboxUpgradeCheckpointRestore SandboxUpgradePolicyType = "CheckpointRestore"
)

// SandboxStatus is what a sandbox is.
type SandboxStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`

	// phase is where the sandbox is in its life. Failed and Succeeded are final.
	// +optional
	Phase SandboxPhase `json:"phase,omitempty" protobuf:"bytes,2,opt,name=phase,casttype=SandboxPhase"`

	// message is the reason for the phase in words.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,3,opt,name=message"`

	// podInfo describes the pod of the sandbox.
	// +optional
	PodInfo PodInfo `json:"podInfo,omitempty,omitzero" protobuf:"bytes,4,opt,name=podInfo"`

	// nodeName is the node that the pod runs on.
	// +optional
	NodeName string `json:"nodeName,omitempty" protobuf:"bytes,5,opt,name=nodeName"`

	// sandboxIp is the address of the sandbox.
	// +optional
	SandboxIP string `json:"sandboxIp,omitempty" protobuf:"bytes,6,opt,name=sandboxIp"`

	// serviceFQDN is the domain name of the sandbox's Service, as long as it has one.
	// +optional
	ServiceFQDN string `json:"serviceFQDN,omitempty" protobuf:"bytes,7,opt,name=serviceFQDN"`

	// updateRevision is the hash of the template of the sandbox.
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty" protobuf:"bytes,8,opt,name=updateRevision"`

	// recycledCount is how often the sandbox went back to its pool.
	// +optional
	RecycledCount int32 `json:"recycledCount,omitempty" protobuf:"varint,9,opt,name=recycledCount"`

	// conditions of the sandbox: Ready, and SandboxPaused, SandboxResumed,
	// InplaceUpdate, Upgrading, RuntimeInitialized and Recycling where they apply; and
	// Suspended and Finished of one that was made or claimed in agents.x-k8s.io.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,10,rep,name=conditions"`
}

// PodInfo describes the pod of a sandbox.
type PodInfo struct {
	// annotations of the pod.
	// +optional
	// +mapType=granular
	Annotations map[string]string `json:"annotations,omitempty" protobuf:"bytes,1,rep,name=annotations"`

	// labels of the pod.
	// +optional
	// +mapType=granular
	Labels map[string]string `json:"labels,omitempty" protobuf:"bytes,2,rep,name=labels"`

	// nodeName is the node that the pod runs on.
	// +optional
	NodeName string `json:"nodeName,omitempty" protobuf:"bytes,3,opt,name=nodeName"`

	// podIP is the address of the pod.
	// +optional
	PodIP string `json:"podIP,omitempty" protobuf:"bytes,4,opt,name=podIP"`

	// podUID is the UID of the pod.
	// +optional
	PodUID types.UID `json:"podUID,omitempty" protobuf:"bytes,5,opt,name=podUID,casttype=k8s.io/apimachinery/pkg/types.UID"`

	// restartCount is how often containers of the pod have been restarted, all of them together.
	// If it is absent, that is not known.
	// +optional
	RestartCount *int32 `json:"restartCount,omitempty" protobuf:"varint,6,opt,name=restartCount"`
}

// IsZero reports whether nothing is known of the pod. It leaves podInfo out of JSON if all its
// fields are empty, and not only if they are absent.
func (p PodInfo) IsZero() bool {
	if len(p.Annotations) == 0 {
		p.Annotations = nil
	}
	if len(p.Labels) == 0 {
		p.Labels = nil
	}
	return reflect.ValueOf(p).IsZero()
}

// SandboxPhase is where a sandbox is in its life.
// +enum
type SandboxPhase string

const (
	// SandboxPending means that the pod does not run yet.
	SandboxPending SandboxPhase = "Pending"
	// SandboxRunning means that the pod runs.
	SandboxRunning SandboxPhase = "Running"
	// SandboxPaused means that the sandbox is being paused or is paused.
	SandboxPaused SandboxPhase = "Paused"
	// SandboxResuming means that the sandbox comes back from a pause.
	SandboxResuming SandboxPhase = "Resuming"
	// SandboxUpgrading means that the sandbox changes to another template.
	SandboxUpgrading SandboxPhase = "Upgrading"
	// SandboxSucceeded means that the pod ended well. Final.
	SandboxSucceeded SandboxPhase = "Succeeded"
	// SandboxFailed means that the pod failed or was lost. Final.
	SandboxFailed SandboxPhase = "Failed"
	// SandboxRecycling means that the sandbox is prepared to go back to its pool.
	SandboxRecycling SandboxPhase = "Recycling"
	// SandboxTerminating is read for compatibility and never written: a sandbox
	// being deleted keeps its last phase.
	SandboxTerminating SandboxPhase = "Terminating"
)

// SandboxList is a list of sandboxes.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items are the sandboxes.
	Items []Sandbox `json:"items" protobuf:"bytes,2,rep,name=items"`
}
