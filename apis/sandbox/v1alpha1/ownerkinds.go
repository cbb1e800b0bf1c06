// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ServedVersions are all groups and versions in which the objects of this package are
// served. They are stored in the first.
var ServedVersions = []schema.GroupVersion{
	SchemeGroupVersion,
	{Group: ExtensionsGroup, Version: "v1beta1"}, {Group: ExtensionsGroup, Version: "v1alpha1"},
	{Group: AgentsGroup, Version: "v1beta1"}, {Group: AgentsGroup, Version: "v1alpha1"},
}

// ClaimKind is the kind of a claim in the API that it was made in, for references to it.
func ClaimKind(claim *SandboxClaim) schema.GroupVersionKind {
	if OfAgentSandbox(claim) {
		return schema.GroupVersionKind{Group: ExtensionsGroup, Version: "v1beta1", Kind: "SandboxClaim"}
	}
	return SchemeGroupVersion.WithKind("SandboxClaim")
}

// KindWarmPool is what a SandboxSet is called in ExtensionsGroup.
const KindWarmPool = "SandboxWarmPool"

// OwnerKind returns what kind of object of ours a reference names, in the words of this
// group, whichever group it is written in: Sandbox, SandboxClaim, SandboxSet or
// SandboxTemplate. It is empty for all else. The version does not matter.
func OwnerKind(ref *metav1.OwnerReference) string {
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	switch {
	case group == ExtensionsGroup && ref.Kind == KindWarmPool:
		return "SandboxSet"
	case group == ExtensionsGroup && (ref.Kind == "SandboxClaim" || ref.Kind == "SandboxTemplate"),
		group == AgentsGroup && ref.Kind == "Sandbox",
		group == GroupName && (ref.Kind == "Sandbox" || ref.Kind == "SandboxClaim" || ref.Kind == "SandboxSet" || ref.Kind == "SandboxTemplate"):
		return ref.Kind
	}
	return ""
}
