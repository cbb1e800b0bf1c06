// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group. It is OpenKruise's, so that manifests and clients
// written for OpenKruise Agents work unchanged.
const GroupName = "agents.kruise.io"

// SchemeGroupVersion is the group and version of the kinds in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

var (
	// SchemeBuilder collects what AddToScheme does.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes, RegisterDefaults)

	// AddToScheme registers the kinds and their defaults. Clients and controllers
	// build their scheme with it; only the API server uses the install package,
	// which knows every type under a second, internal version.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource qualifies a resource with the group. Generated clients call it.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&SandboxClaim{}, &SandboxClaimList{}, &SandboxClaimRelease{}, &SandboxClaimRuntimeAccess{},
		&SandboxSet{}, &SandboxSetList{},
		&SandboxTemplate{}, &SandboxTemplateList{},
		&Sandbox{}, &SandboxList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
