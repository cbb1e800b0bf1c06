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
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is Claiming while sandboxes are missing or being prepared, and
	// Completed when all are claimed or the time is over. Completed is final: no
	// further sandboxes are claimed.
	// +optional
	Phase SandboxClaimPhase `json:"phase,omitempty"`

	// message is the state of the claim in words: while it is Claiming what it waits for,
	// and why that cannot start if that is known; then how it ended.
	// +optional
	Message string `json:"message,omitempty"`

	// claimedReplicas is the number of sandboxes claimed so far. It does not go
	// down when a claimed sandbox is deleted later.
	// +optional
	ClaimedReplicas int32 `json:"claimedReplicas"`

	// failedReplicas is how many sandboxes have failed while they were prepared for the
	// claim, and were released or kept for debugging. A claim of which too many fail gets
	// no more.
	// +optional
	FailedReplicas int32 `json:"failedReplicas,omitempty"`

	// failures say why the first of the failed sandboxes failed. At most 3 are listed.
	// +optional
	// +listType=atomic
	Failures []SandboxFailure `json:"failures,omitempty"`

	// waiting says what a claim waits for that still lacks sandboxes. It is absent once the claim
	// lacks none or has ended.
	// +optional
	Waiting *ClaimWaiting `json:"waiting,omitempty"`

	// claimStartTime is when claiming began; claimTimeout counts from it.
	// +optional
	ClaimStartTime *metav1.Time `json:"claimStartTime,omitempty"`

	// completionTime is when the phase became Completed; ttlAfterCompleted counts
	// from it.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// sandboxes are the claimed sandboxes, in the namespace of the claim.
	// +optional
	// +listType=map
	// +listMapKey=name
	Sandboxes []ClaimedSandbox `json:"sandboxes,omitempty"`

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
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// SandboxFailure says why a sandbox failed while it was prepared for a claim.
type SandboxFailure struct {
	// name of the sandbox.
	// +required
	Name string `json:"name"`
	// message says why it failed, in at most 256 bytes.
	// +optional
	Message string `json:"message,omitempty"`
}

// ClaimWaiting says what a claim waits for that lacks sandboxes. The message of the claim says
// the same in words.
type ClaimWaiting struct {
	// reason is why nothing can serve the claim as things are, such as SandboxSetNotFound. It
	// is empty if the claim can be served.
	// +optional
	Reason string `json:"reason,omitempty"`
	// replicas is how many sandboxes of pools the claim waits for.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// poolProblem is why sandboxes of the pools cannot start, if that is known. It has at most
	// 512 bytes, as startProblem.
	// +optional
	PoolProblem string `json:"poolProblem,omitempty"`
	// starting is how many sandboxes are being created, started or changed for the claim, if
	// one of them cannot start. In a dry run it is how many a create would make.
	// +optional
	Starting int32 `json:"starting,omitempty"`
	// startProblem is why one of these cannot start, if that is known.
	// +optional
	StartProblem string `json:"startProblem,omitempty"`
	// createProblem is why no sandboxes can be created for a claim that lacks some.
	// +optional
	CreateProblem string `json:"createProblem,omitempty"`
}

// ClaimedSandbox is one sandbox of a claim.
type ClaimedSandbox struct {
	// name of the Sandbox.
	// +required
	Name string `json:"name"`

	// uid of the Sandbox. It tells the sandbox from any other that has had its name or
	// will have it. Empty in what an older version of Sandlot wrote.
	// +optional
	UID types.UID `json:"uid,omitempty"`

	// podIPs are the addresses of the sandbox's pod. A sandbox that is paused or gone
	// has none.
	// +optional
	// +listType=atomic
	PodIPs []string `json:"podIPs,omitempty"`
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
