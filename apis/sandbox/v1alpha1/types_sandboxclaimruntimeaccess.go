// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// RuntimeAccessParameter is the query parameter by which the create of a SandboxClaim
	// asks for access tokens in its response: "true". It requires the right to create
	// sandboxclaims/runtimeaccess.
	RuntimeAccessParameter = "runtimeAccess"
	// RuntimeAccessHeader is the header of the response that has them: a JSON object of
	// access tokens by sandbox name. It is set if the claim is Completed in the response and
	// has at most MaxResponseTokens sandboxes.
	RuntimeAccessHeader = "Sandlot-Runtime-Access"
	// MaxResponseTokens bounds the size of the header, because proxies limit it.
	MaxResponseTokens = 8
)

// SandboxClaimRuntimeAccess contains the addresses and access tokens of the agent-runtimes in
// the sandboxes of a claim. They are in no stored object. It is created at the subresource
// runtimeaccess of a SandboxClaim, and is not stored. It contains only sandboxes that are
// bound to this claim.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxClaimRuntimeAccess struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. Name and namespace are the claim's, and
	// may be left out.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec says which sandboxes are asked for. Empty is all that the claim has.
	// +optional
	Spec SandboxClaimRuntimeAccessSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is the answer of the server.
	// +optional
	Status SandboxClaimRuntimeAccessStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// SandboxClaimRuntimeAccessSpec says which sandboxes are asked for.
type SandboxClaimRuntimeAccessSpec struct {
	// sandboxNames are the sandboxes to report, at most 1000. Empty means all that are
	// bound to the claim and count, except for failed ones that it keeps for debugging, which
	// have to be named. A claim that has more than 1000 needs names.
	// +optional
	// +listType=atomic
	SandboxNames []string `json:"sandboxNames,omitempty" protobuf:"bytes,1,rep,name=sandboxNames"`

	// claimUID is the UID that the claim must have. Otherwise, because it is another claim
	// of the same name, the answer is 409.
	// +optional
	ClaimUID types.UID `json:"claimUID,omitempty" protobuf:"bytes,2,opt,name=claimUID,casttype=k8s.io/apimachinery/pkg/types.UID"`
}

// SandboxClaimRuntimeAccessStatus says how to reach the agent-runtimes.
type SandboxClaimRuntimeAccessStatus struct {
	// sandboxes are those that were asked for and are there, ordered by name.
	// +optional
	// +listType=atomic
	Sandboxes []SandboxRuntimeAccess `json:"sandboxes,omitempty" protobuf:"bytes,1,rep,name=sandboxes"`
}

// SandboxRuntimeAccess says how to reach the agent-runtime of one sandbox.
type SandboxRuntimeAccess struct {
	// name of the sandbox.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// uid of the sandbox.
	// +required
	UID types.UID `json:"uid" protobuf:"bytes,2,opt,name=uid,casttype=k8s.io/apimachinery/pkg/types.UID"`

	// url is the base URL of the agent-runtime, at the address of the pod. Empty where the
	// sandbox has no address at the moment.
	// +optional
	URL string `json:"url,omitempty" protobuf:"bytes,3,opt,name=url"`

	// accessToken is what calls of the agent-runtime need, in the header X-Access-Token.
	// Empty with skipInitRuntime, where no token is set, unless the sandbox has that of
	// its pool.
	// +optional
	AccessToken string `json:"accessToken,omitempty" protobuf:"bytes,4,opt,name=accessToken"`
}
