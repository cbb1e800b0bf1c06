// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SandboxClaimStatus says what has been claimed.
type SandboxClaimStatus struct {
	// observedGeneration is the generation of the spec that this status is about. After a
	// change of labels, annotations or additionalPodMetadata it stays behind until all
	// claimed sandboxes have them.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`

	// phase is Claiming while sandboxes are missing or being prepared, and
	// Completed when all are claimed or the time is over. Completed is final: no
	// further sandboxes are claimed.
	// +optional
	Phase SandboxClaimPhase `json:"phase,omitempty" protobuf:"bytes,2,opt,name=phase,casttype=SandboxClaimPhase"`

	// message is the state of the claim in words: while it is Claiming what it waits for,
	// and why that cannot start if that is known; then how it ended.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,3,opt,name=message"`

	// claimedReplicas is the number of sandboxes claimed so far. It does not go
	// down when a claimed sandbox is deleted later.
	// +optional
	ClaimedReplicas int32 `json:"claimedReplicas" protobuf:"varint,4,opt,name=claimedReplicas"`

	// failedReplicas is how many sandboxes have failed while they were prepared for the
	// claim, and were released or kept for debugging. A claim of which too many fail gets
	// no more.
	// +optional
	FailedReplicas int32 `json:"failedReplicas,omitempty" protobuf:"varint,5,opt,name=failedReplicas"`

	// failures say why the first of the failed sandboxes failed. At most 3 are listed.
	// +optional
	// +listType=atomic
	Failures []SandboxFailure `json:"failures,omitempty" protobuf:"bytes,6,rep,name=failures"`

	// waiting says what a claim waits for that still lacks sandboxes. It is absent once the claim
	// lacks none or has ended.
	// +optional
	Waiting *ClaimWaiting `json:"waiting,omitempty" protobuf:"bytes,7,opt,name=waiting"`

	// claimStartTime is when claiming began; claimTimeout counts from it.
	// +optional
	ClaimStartTime *metav1.Time `json:"claimStartTime,omitempty" protobuf:"bytes,8,opt,name=claimStartTime"`

	// completionTime is when the phase became Completed; ttlAfterCompleted counts
	// from it.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty" protobuf:"bytes,9,opt,name=completionTime"`

	// sandboxes are the claimed sandboxes, in the namespace of the claim.
	// +optional
	// +listType=map
	// +listMapKey=name
	Sandboxes []ClaimedSandbox `json:"sandboxes,omitempty" protobuf:"bytes,10,rep,name=sandboxes"`

	// conditions of the claim: Completed (nothing more will be claimed), TimedOut
	// (claimTimeout was reached), Ready (all wanted sandboxes were claimed, and are usable;
	// with Completed it is always there, and False with a reason otherwise),
	// InplaceUpdate (how changes in place of the sandboxes went), MetadataSynced (how the
	// last change of labels, annotations or additionalPodMetadata went of a claim that has
	// sandboxes) and
	// Finished (the claimed sandboxes have ended).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,11,rep,name=conditions"`
}

// SandboxFailure says why a sandbox failed while it was prepared for a claim.
type SandboxFailure struct {
	// name of the sandbox.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	// message says why it failed, in at most 256 bytes.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,2,opt,name=message"`
}

// ClaimWaiting says what a claim waits for that lacks sandboxes. The message of the claim says
// the same in words.
type ClaimWaiting struct {
	// reason is why nothing can serve the claim as things are, such as SandboxSetNotFound. It
	// is empty if the claim can be served.
	// +optional
	Reason string `json:"reason,omitempty" protobuf:"bytes,1,opt,name=reason"`
	// replicas is how many sandboxes of pools the claim waits for.
	// +optional
	Replicas int32 `json:"replicas,omitempty" protobuf:"varint,2,opt,name=replicas"`
	// poolProblem is why sandboxes of the pools cannot start, if that is known. It has at most
	// 512 bytes, as startProblem.
	// +optional
	PoolProblem string `json:"poolProblem,omitempty" protobuf:"bytes,3,opt,name=poolProblem"`
	// starting is how many sandboxes are being created, started or changed for the claim, if
	// one of them cannot start. In a dry run it is how many a create would make.
	// +optional
	Starting int32 `json:"starting,omitempty" protobuf:"varint,4,opt,name=starting"`
	// startProblem is why one of these cannot start, if that is known.
	// +optional
	StartProblem string `json:"startProblem,omitempty" protobuf:"bytes,5,opt,name=startProblem"`
	// createProblem is why no sandboxes can be created for a claim that lacks some.
	// +optional
	CreateProblem string `json:"createProblem,omitempty" protobuf:"bytes,6,opt,name=createProblem"`
}

// ClaimedSandbox is one sandbox of a claim.
type ClaimedSandbox struct {
	// name of the Sandbox.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// uid of the Sandbox. It tells the sandbox from any other that has had its name or
	// will have it. Empty in what an older version of Sandlot wrote.
	// +optional
	UID types.UID `json:"uid,omitempty" protobuf:"bytes,2,opt,name=uid,casttype=k8s.io/apimachinery/pkg/types.UID"`

	// podIPs are the addresses of the sandbox's pod. A sandbox that is paused or gone
	// has none.
	// +optional
	// +listType=atomic
	PodIPs []string `json:"podIPs,omitempty" protobuf:"bytes,3,rep,name=podIPs"`
}

// SandboxClaimPhase is the phase of a claim.
// +enum
type SandboxClaimPhase string

const (
	// SandboxClaimPhaseClaiming means that sandboxes are missing or being prepared.
	SandboxClaimPhaseClaiming SandboxClaimPhase = "Claiming"
	// SandboxClaimPhaseCompleted means that nothing more will be claimed.
	SandboxClaimPhaseCompleted SandboxClaimPhase = "Completed"
)
