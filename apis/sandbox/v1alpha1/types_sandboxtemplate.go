// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SandboxTemplate describes a sandbox once, for the SandboxSets and SandboxClaims
// that refer to it.
// +genclient
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec describes the sandbox.
	// +optional
	Spec SandboxTemplateSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
}

// SandboxTemplateSpec describes a sandbox. A SandboxSet that refers to a template
// takes its pod template, volumeClaimTemplates and service from here;
// persistentContents, runtimes and pauseStrategy are always the set's own.
type SandboxTemplateSpec struct {
	EmbeddedSandboxTemplate `json:",inline" protobuf:"bytes,1,opt,name=embeddedSandboxTemplate"`

	// pauseStrategy says how a sandbox made straight from this template is paused.
	// +optional
	PauseStrategy *PauseStrategy `json:"pauseStrategy,omitempty" protobuf:"bytes,2,opt,name=pauseStrategy"`

	// persistentContents says what is to outlive a pause of a sandbox made straight
	// from this template: any of ip, memory and filesystem. It has no effect: a pause of
	// type Stop, the only one that is served, keeps volumeClaimTemplates alone.
	// +optional
	// +listType=atomic
	PersistentContents []string `json:"persistentContents,omitempty" protobuf:"bytes,3,rep,name=persistentContents"`

	// runtimes are programs to run beside the user's containers in a sandbox made
	// straight from this template: names of entries of the ConfigMap
	// sandbox-injection-config in the namespace of the installation.
	// +optional
	// +listType=atomic
	Runtimes []RuntimeConfig `json:"runtimes,omitempty" protobuf:"bytes,4,rep,name=runtimes"`

	// envVarsInjectionPolicy says what a claim's env may do to the containers:
	// Allowed adds new variables, Overrides also replaces those of the template,
	// Disallowed refuses such claims. Empty means Disallowed.
	// +optional
	EnvVarsInjectionPolicy InjectionPolicy `json:"envVarsInjectionPolicy,omitempty" protobuf:"bytes,5,opt,name=envVarsInjectionPolicy,casttype=InjectionPolicy"`

	// envVarsInjectionContainers says which containers a claim's env may name: All, or
	// First for the first container of the pod template alone. Empty means All.
	// +optional
	EnvVarsInjectionContainers InjectionContainers `json:"envVarsInjectionContainers,omitempty" protobuf:"bytes,6,opt,name=envVarsInjectionContainers,casttype=InjectionContainers"`

	// podMetadataPolicy says which labels and annotations of a claim reach the pods of
	// this template's sandboxes, unless the SandboxSet that they come from says it
	// itself. Unset means what the API server's flag --claim-pod-metadata says.
	// +optional
	PodMetadataPolicy *PodMetadataPolicy `json:"podMetadataPolicy,omitempty" protobuf:"bytes,7,opt,name=podMetadataPolicy"`

	// volumeClaimTemplatesPolicy says what a claim's volumeClaimTemplates may do:
	// Allowed adds new ones, also to replace an emptyDir of that name in the pod
	// template, Overrides also replaces any other volume of the same name, Disallowed
	// refuses such claims. Empty means Disallowed.
	// +optional
	VolumeClaimTemplatesPolicy InjectionPolicy `json:"volumeClaimTemplatesPolicy,omitempty" protobuf:"bytes,8,opt,name=volumeClaimTemplatesPolicy,casttype=InjectionPolicy"`

	// volumeClaimTemplatesOptions says what volumes a claim's volumeClaimTemplates may
	// ask for beyond new, empty ones of the default StorageClass and of those that the
	// volumeClaimTemplates of this template, or of the SandboxSet, name.
	// +optional
	VolumeClaimTemplatesOptions *VolumeClaimTemplatesOptions `json:"volumeClaimTemplatesOptions,omitempty" protobuf:"bytes,9,opt,name=volumeClaimTemplatesOptions"`

	// maxFreshSandboxes is how many sandboxes one claim may hold at a time that were
	// made for it straight from this template, or from a SandboxSet that refers to it
	// and says nothing itself, from 0 to 10000. Unset means the server's
	// --max-fresh-sandboxes. It may be more than that.
	// +optional
	MaxFreshSandboxes *int32 `json:"maxFreshSandboxes,omitempty" protobuf:"varint,10,opt,name=maxFreshSandboxes"`

	// networkPolicy is the traffic that sandboxes of this template may have. Unset
	// means no restriction, or with networkPolicyManagement Managed the secure default:
	// from the namespace of the installation in, to public addresses out.
	// +optional
	NetworkPolicy *SandboxNetworkPolicy `json:"networkPolicy,omitempty" protobuf:"bytes,11,opt,name=networkPolicy"`

	// networkPolicyManagement says who keeps the NetworkPolicy of this template:
	// Managed makes it and keeps it right, Unmanaged leaves networking to others
	// and does not apply networkPolicy. Empty means Managed where networkPolicy is set
	// and Unmanaged where it is not. With Managed, and no networkPolicy, sandboxes of
	// this template whose pod template sets no dnsPolicy ask public name servers,
	// because those of the cluster are out of reach.
	// +optional
	NetworkPolicyManagement NetworkPolicyManagement `json:"networkPolicyManagement,omitempty" protobuf:"bytes,12,opt,name=networkPolicyManagement,casttype=NetworkPolicyManagement"`

	// service says whether each sandbox of this template has a headless Service of its
	// name: true makes one, false removes it, unset makes none and keeps one that is
	// there. It is for sandboxes made straight from this template and for those of
	// SandboxSets whose templateRef names it, not for templates that refer to it.
	// +optional
	Service *bool `json:"service,omitempty" protobuf:"varint,13,opt,name=service"`
}

// SandboxNetworkPolicy is the traffic that sandboxes of a template may have, in the
// rules of a NetworkPolicy.
type SandboxNetworkPolicy struct {
	// ingress are the kinds of incoming traffic that are allowed. Empty denies all.
	// +optional
	// +listType=atomic
	Ingress []networkingv1.NetworkPolicyIngressRule `json:"ingress,omitempty" protobuf:"bytes,1,rep,name=ingress"`

	// egress are the kinds of outgoing traffic that are allowed. Empty denies all.
	// +optional
	// +listType=atomic
	Egress []networkingv1.NetworkPolicyEgressRule `json:"egress,omitempty" protobuf:"bytes,2,rep,name=egress"`
}

// InjectionPolicy says what a claim may add to what its template says.
// +enum
type InjectionPolicy string

const (
	// InjectionDisallowed refuses additions.
	InjectionDisallowed InjectionPolicy = "Disallowed"
	// InjectionAllowed takes additions, but no replacements.
	InjectionAllowed InjectionPolicy = "Allowed"
	// InjectionOverrides takes additions and replacements.
	InjectionOverrides InjectionPolicy = "Overrides"
)

// VolumeClaimTemplatesOptions says what volumes a claim may ask for. Without an option
// they are new and empty.
type VolumeClaimTemplatesOptions struct {
	// storageClassNames are more StorageClasses that a claim may name: at most 64. An
	// empty name is that of volumes which are provisioned by hand.
	// +optional
	// +listType=atomic
	StorageClassNames []string `json:"storageClassNames,omitempty" protobuf:"bytes,1,rep,name=storageClassNames"`

	// dataSources are the kinds of what dataSource and dataSourceRef may name, in the
	// claim's namespace: at most 64, such as PersistentVolumeClaim or, with its API group,
	// VolumeSnapshot.snapshot.storage.k8s.io.
	// +optional
	// +listType=atomic
	DataSources []string `json:"dataSources,omitempty" protobuf:"bytes,2,rep,name=dataSources"`

	// existingVolumes lets volumeName and selector choose PersistentVolumes, which belong
	// to no namespace. Default false.
	// +optional
	ExistingVolumes bool `json:"existingVolumes,omitempty" protobuf:"varint,3,opt,name=existingVolumes"`
}

// InjectionContainers says which containers of a pod template a claim's env may name.
// +enum
type InjectionContainers string

const (
	// InjectionContainersAll are all containers and init containers.
	InjectionContainersAll InjectionContainers = "All"
	// InjectionContainersFirst is the first container alone, which is the one that a
	// variable without a container's name is for.
	InjectionContainersFirst InjectionContainers = "First"
)

// PodMetadataPolicy says which keys of a claim's labels and annotations reach pods. A
// key is one of these, or begins with one that ends in *; * alone is every key. An
// empty list lets no key through. What is held back is on the Sandbox all the same.
type PodMetadataPolicy struct {
	// labels are the keys of labels that reach pods: at most 64, such as team or
	// example.com/*.
	// +optional
	// +listType=atomic
	Labels []string `json:"labels,omitempty" protobuf:"bytes,1,rep,name=labels"`

	// annotations are the keys of annotations that reach pods: at most 64.
	// +optional
	// +listType=atomic
	Annotations []string `json:"annotations,omitempty" protobuf:"bytes,2,rep,name=annotations"`
}

// NetworkPolicyManagement says who keeps the NetworkPolicy of a template.
// +enum
type NetworkPolicyManagement string

const (
	// NetworkPolicyManaged makes the NetworkPolicy and keeps it right.
	NetworkPolicyManaged NetworkPolicyManagement = "Managed"
	// NetworkPolicyUnmanaged leaves networking to others.
	NetworkPolicyUnmanaged NetworkPolicyManagement = "Unmanaged"
)

// SandboxTemplateList is a list of templates.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxTemplateList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items are the templates.
	Items []SandboxTemplate `json:"items" protobuf:"bytes,2,rep,name=items"`
}
