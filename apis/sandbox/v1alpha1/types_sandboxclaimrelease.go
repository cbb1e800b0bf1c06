// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SandboxClaimRelease gives sandboxes of a claim back: they are deleted. It is created
// at the subresource release of a SandboxClaim that is Completed, and is not stored. Who
// may create it needs no rights on sandboxes, because it reaches only those that are
// bound to this very claim.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxClaimRelease struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. Name and namespace are the claim's, and
	// may be left out.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec says what is given back. Empty is everything that the claim has.
	// +optional
	Spec SandboxClaimReleaseSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is the answer of the server.
	// +optional
	Status SandboxClaimReleaseStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// SandboxClaimReleaseSpec says what is given back.
type SandboxClaimReleaseSpec struct {
	// sandboxNames are the sandboxes to delete, at most 10000. Those of the claim that are
	// gone already are passed over. Empty means all that are bound to the claim, except for
	// failed ones that it keeps for debugging, which have to be named.
	// +optional
	// +listType=atomic
	SandboxNames []string `json:"sandboxNames,omitempty" protobuf:"bytes,1,rep,name=sandboxNames"`

	// claimUID is the UID that the claim must have. Otherwise, because it is another claim
	// of the same name, nothing is deleted, and the answer is 409.
	// +optional
	ClaimUID types.UID `json:"claimUID,omitempty" protobuf:"bytes,2,opt,name=claimUID,casttype=k8s.io/apimachinery/pkg/types.UID"`
}

// SandboxClaimReleaseStatus says what was given back.
type SandboxClaimReleaseStatus struct {
	// released are the sandboxes that this request has deleted, ordered by name. One with
	// finalizers is there until those are removed.
	// +optional
	// +listType=atomic
	Released []string `json:"released,omitempty" protobuf:"bytes,1,rep,name=released"`

	// remaining is how many sandboxes are left to delete because the time of the request
	// was over. The same request once more continues with them. 0 means that there are none.
	Remaining int32 `json:"remaining" protobuf:"varint,2,opt,name=remaining"`
}
