// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SandboxSet keeps a pool of sandboxes that are started before anyone asks for
// them, and refills it as they are claimed.
// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxSet struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. The name has at most 63 characters,
	// because it is also the value of a label on every sandbox of the set.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec says how large the pool is and what its sandboxes look like.
	// +required
	Spec SandboxSetSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`

	// status says how much of the pool is there.
	// +optional
	Status SandboxSetStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// SandboxSetSpec says how large a pool is and what its sandboxes look like.
type SandboxSetSpec struct {
	// replicas is the number of unused sandboxes to keep, whether already available
	// or still starting. Claimed sandboxes do not count. At least 0.
	// +required
	Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,1,opt,name=replicas"`

	EmbeddedSandboxTemplate `json:",inline" protobuf:"bytes,2,opt,name=embeddedSandboxTemplate"`

	// patch is a strategic merge patch on the pod template that templateRef leads
	// to, so that several sets can share one template and differ in size, labels or
	// placement. Only together with templateRef.
	// +optional
	Patch *runtime.RawExtension `json:"patch,omitempty" protobuf:"bytes,3,opt,name=patch"`

	// pauseStrategy is copied to each sandbox.
	// +optional
	PauseStrategy *PauseStrategy `json:"pauseStrategy,omitempty" protobuf:"bytes,4,opt,name=pauseStrategy"`

	// persistentContents says what of a sandbox is to outlive a pause: any of ip,
	// memory and filesystem. Copied to each sandbox. It has no effect: a pause of type
	// Stop, the only one that is served, keeps volumeClaimTemplates alone.
	// +optional
	// +listType=atomic
	PersistentContents []string `json:"persistentContents,omitempty" protobuf:"bytes,5,rep,name=persistentContents"`

	// runtimes are programs to run beside the user's containers: names of entries of
	// the ConfigMap sandbox-injection-config in the namespace of the installation.
	// Copied to each sandbox.
	// +optional
	// +listType=atomic
	Runtimes []RuntimeConfig `json:"runtimes,omitempty" protobuf:"bytes,6,rep,name=runtimes"`

	// podMetadataPolicy says which labels and annotations of a claim reach the pods of
	// this set's sandboxes. Unset means what the SandboxTemplate says that templateRef
	// names, and where that says nothing, or there is none, what the API server's flag
	// --claim-pod-metadata says.
	// +optional
	PodMetadataPolicy *PodMetadataPolicy `json:"podMetadataPolicy,omitempty" protobuf:"bytes,7,opt,name=podMetadataPolicy"`

	// scaleStrategy says how fast the pool grows, and how far while claims wait.
	// +optional
	ScaleStrategy SandboxSetScaleStrategy `json:"scaleStrategy,omitempty,omitzero" protobuf:"bytes,8,opt,name=scaleStrategy"`

	// maxFreshSandboxes is how many sandboxes one claim may hold at a time that were
	// made for it from this set because the pool had too few (createOnNoStock), from 0
	// to 10000. The rest of such a claim waits for the pool. Unset means what the
	// template says that templateRef names first, or else the server's
	// --max-fresh-sandboxes. It may be more than that.
	// +optional
	MaxFreshSandboxes *int32 `json:"maxFreshSandboxes,omitempty" protobuf:"varint,9,opt,name=maxFreshSandboxes"`

	// updateStrategy limits how fast sandboxes of an older template are replaced.
	// +optional
	UpdateStrategy SandboxSetUpdateStrategy `json:"updateStrategy,omitempty,omitzero" protobuf:"bytes,10,opt,name=updateStrategy"`

	// revisionHistoryLimit is how many SandboxTemplates of earlier revisions are kept
	// that no sandbox uses any more, for a look at them and for a way back. The oldest
	// go first. From 0 to 100; 10 where it is not set.
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty" protobuf:"varint,11,opt,name=revisionHistoryLimit"`

	// claimDefaults are defaults for the claims of the agent-sandbox API that this set serves.
	// They are copied to a claim when it gets its sandbox, and only to fields that the claim
	// does not set. A claim that has its sandbox already is not changed. Claims of this API do
	// not get them.
	// +optional
	ClaimDefaults *SandboxClaimDefaults `json:"claimDefaults,omitempty" protobuf:"bytes,12,opt,name=claimDefaults"`
}

// SandboxClaimDefaults are defaults for the claims that a set serves.
type SandboxClaimDefaults struct {
	// lifecycle is the lifecycle of claims that set none. It must not set shutdownTime: claims
	// that are created after that time would expire at once.
	// +optional
	Lifecycle *SandboxClaimLifecycle `json:"lifecycle,omitempty" protobuf:"bytes,1,opt,name=lifecycle"`
}

// SandboxSetScaleStrategy says how fast a pool grows, and how far while claims wait.
type SandboxSetScaleStrategy struct {
	// maxUnavailable is how many sandboxes may fail to start before no more are created: a
	// number, or a percentage of replicas (with those of a burst), rounded up. A sandbox
	// counts if it cannot start, or if it is Pending for longer than the controller manager's
	// --max-pending-timeout. Sandboxes that are starting normally do not count. 0 stops the
	// pool from growing. Unset means no limit.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty" protobuf:"bytes,1,opt,name=maxUnavailable"`

	// burst is how many sandboxes beyond replicas may be made while claims wait for
	// them: as many as are waited for, and no more than this, from 0 to 10000. Claims
	// that make fresh sandboxes (createOnNoStock) do not wait. What is not wanted any
	// more in the end is deleted. Default 0.
	// +optional
	Burst *int32 `json:"burst,omitempty" protobuf:"varint,2,opt,name=burst"`
}

// SandboxSetUpdateStrategy limits how fast sandboxes of an older template are
// replaced.
type SandboxSetUpdateStrategy struct {
	// type is how sandboxes of an older template are replaced: RollingUpdate replaces
	// them as maxUnavailable allows, Recreate all at once, and OnReplenish none: they stay
	// until they are claimed or deleted. Default RollingUpdate.
	// +optional
	Type SandboxSetUpdateType `json:"type,omitempty" protobuf:"bytes,1,opt,name=type,casttype=SandboxSetUpdateType"`

	// maxUnavailable is how far a change of the template may lower the number of
	// available sandboxes below replicas: a number, or a percentage of replicas,
	// rounded up. Claimed sandboxes are never touched. Default 20%.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty" protobuf:"bytes,2,opt,name=maxUnavailable"`
}

// SandboxSetUpdateType is how sandboxes of an older template are replaced.
type SandboxSetUpdateType string

// The ways to replace sandboxes of an older template. Recreate and OnReplenish are those
// of agent-sandbox.
const (
	// SetUpdateRolling replaces them as maxUnavailable allows. It is the default.
	SetUpdateRolling SandboxSetUpdateType = "RollingUpdate"
	// SetUpdateRecreate replaces them all at once.
	SetUpdateRecreate SandboxSetUpdateType = "Recreate"
	// SetUpdateOnReplenish leaves them until they are claimed or deleted.
	SetUpdateOnReplenish SandboxSetUpdateType = "OnReplenish"
)

// SandboxSetStatus says how much of a pool is there.
type SandboxSetStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`

	// replicas is the number of unused sandboxes, available or still starting.
	// +required
	Replicas int32 `json:"replicas" protobuf:"varint,2,opt,name=replicas"`

	// availableReplicas is the number of sandboxes that can be claimed now.
	// +required
	AvailableReplicas int32 `json:"availableReplicas" protobuf:"varint,3,opt,name=availableReplicas"`

	// updatedReplicas is the number of unused sandboxes made from the current
	// template.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas,omitempty" protobuf:"varint,4,opt,name=updatedReplicas"`

	// updatedAvailableReplicas is the number of sandboxes made from the current
	// template that can be claimed now.
	// +optional
	UpdatedAvailableReplicas int32 `json:"updatedAvailableReplicas,omitempty" protobuf:"varint,5,opt,name=updatedAvailableReplicas"`

	// updateRevision is the hash of the current template. Sandboxes made from it
	// have it as their label agents.kruise.io/template-hash.
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty" protobuf:"bytes,6,opt,name=updateRevision"`

	// currentRevision is the name of the template that the set refers to and does not
	// patch. For other sets it is the name of the SandboxTemplate that holds the
	// current template.
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty" protobuf:"bytes,7,opt,name=currentRevision"`

	// selector is a label selector for the unused sandboxes of this set, for the
	// scale subresource.
	// +optional
	Selector string `json:"selector,omitempty" protobuf:"bytes,8,opt,name=selector"`

	// conditions of the set.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,9,rep,name=conditions"`
}

// SandboxSetList is a list of sets.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxSetList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items are the sets.
	Items []SandboxSet `json:"items" protobuf:"bytes,2,rep,name=items"`
}
