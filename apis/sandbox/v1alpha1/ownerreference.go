// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AgentVersion is the version in which references name objects of agent-sandbox.
const AgentVersion = "v1beta1"

// OwnedBySandbox returns the reference by which a sandbox is the controller of its pod and
// of what else is its own. It is in the words of the API in which the sandbox was made or
// claimed: clients of agent-sandbox go by it.
func OwnedBySandbox(sandbox *Sandbox) *metav1.OwnerReference {
	return ownedIn(AgentsGroup, "Sandbox", sandbox)
}

// OwnedByClaim returns the reference by which a claim is the controller of a sandbox, in
// the words of the API in which the claim was made.
func OwnedByClaim(claim *SandboxClaim) *metav1.OwnerReference {
	return ownedIn(ExtensionsGroup, "SandboxClaim", claim)
}

func ownedIn(agentGroup, kind string, owner metav1.Object) *metav1.OwnerReference {
	gvk := SchemeGroupVersion.WithKind(kind)
	if OfAgentSandbox(owner) {
		gvk = schema.GroupVersionKind{Group: agentGroup, Version: AgentVersion, Kind: kind}
	}
	return metav1.NewControllerRef(owner, gvk)
}

// ControlledBy reports whether the controller of an object is, by kind, name and UID, an
// owner of a kind of this group, whichever group the reference is written in.
func ControlledBy(object metav1.Object, kind string, owner metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(object)
	return ref != nil && ref.UID == owner.GetUID() && ref.Name == owner.GetName() && OwnerKind(ref) == kind
}
