// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// EmbeddedSandboxTemplate says what the pod of a sandbox looks like: inline, or
// by reference to a SandboxTemplate.
//
// Templates are kept as raw JSON. Nothing on the way of a claim looks into
// them, so they are not decoded there, and fields of a newer Kubernetes survive
// the way through this server.
type EmbeddedSandboxTemplate struct {
	// templateRef names a SandboxTemplate, or a PodTemplate, in the same namespace
	// whose pod template is used. Exactly one of templateRef and template is set.
	// +optional
	TemplateRef *SandboxTemplateRef `json:"templateRef,omitempty" protobuf:"bytes,1,opt,name=templateRef"`

	// template is the pod template (metadata and spec as in a Deployment) of the
	// sandbox's pod. At least one container with a name and an image is required.
	// Fields that this server does not know are kept.
	// Exactly one of templateRef and template is set.
	// +optional
	Template *runtime.RawExtension `json:"template,omitempty" protobuf:"bytes,2,opt,name=template"`

	// volumeClaimTemplates are PersistentVolumeClaims made for each sandbox, under
	// the name <template name>-<sandbox name>. Each is added to the pod as a volume
	// of the template's name, and goes away with the sandbox.
	// +optional
	// +listType=atomic
	VolumeClaimTemplates []runtime.RawExtension `json:"volumeClaimTemplates,omitempty" protobuf:"bytes,3,rep,name=volumeClaimTemplates"`
}

// SandboxTemplateRef names what holds a pod template, in the same namespace: a
// SandboxTemplate, which may refer to another one in turn, or a PodTemplate.
type SandboxTemplateRef struct {
	// name of the referenced object.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// kind of the referenced object: SandboxTemplate, or PodTemplate for one of the
	// cluster's own. Empty means SandboxTemplate.
	// +optional
	Kind string `json:"kind,omitempty" protobuf:"bytes,2,opt,name=kind"`

	// apiVersion of the referenced object: agents.kruise.io/v1alpha1 for a
	// SandboxTemplate, v1 for a PodTemplate. Empty means the one that goes with the
	// kind.
	// +optional
	APIVersion string `json:"apiVersion,omitempty" protobuf:"bytes,3,opt,name=apiVersion"`
}

// Kinds that a SandboxTemplateRef can name.
const (
	// TemplateKindSandboxTemplate is what an empty kind means.
	TemplateKindSandboxTemplate = "SandboxTemplate"
	// TemplateKindPodTemplate is the kind of core/v1, in a cluster.
	TemplateKindPodTemplate = "PodTemplate"
)

// RuntimeConfig names a program that runs beside the user's containers.
type RuntimeConfig struct {
	// name of the runtime, for example agent-runtime, csi or traffic-proxy.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// What of a sandbox can be asked to outlive a pause.
const (
	// PersistentContentIP is the address of the pod.
	PersistentContentIP = "ip"
	// PersistentContentMemory is what its processes hold in memory.
	PersistentContentMemory = "memory"
	// PersistentContentFilesystem is what they have written outside of volumes.
	PersistentContentFilesystem = "filesystem"
)

// PauseStrategy says how a sandbox is paused.
type PauseStrategy struct {
	// type is Stop (the pod is deleted, and made anew on resume) or Hibernate (the
	// node keeps a picture of the running pod). Empty means Stop. Hibernate is not
	// served, and is refused.
	// +optional
	Type PauseStrategyType `json:"type,omitempty" protobuf:"bytes,1,opt,name=type,casttype=PauseStrategyType"`

	// hibernateStrategy refines type Hibernate. It is not served, and is refused.
	// +optional
	HibernateStrategy *HibernateStrategy `json:"hibernateStrategy,omitempty" protobuf:"bytes,2,opt,name=hibernateStrategy"`
}

// HibernateStrategy refines pausing by hibernation.
type HibernateStrategy struct {
	// type is the way to hibernate; its values depend on what the node offers.
	// +optional
	Type string `json:"type,omitempty" protobuf:"bytes,1,opt,name=type"`
}

// PauseStrategyType is a way to pause a sandbox.
// +enum
type PauseStrategyType string

const (
	// PauseStrategyStop deletes the pod and makes it anew on resume.
	PauseStrategyStop PauseStrategyType = "Stop"
	// PauseStrategyHibernate keeps a picture of the running pod.
	PauseStrategyHibernate PauseStrategyType = "Hibernate"
)

// RawTemplate encodes a pod template for the template fields of this package.
func RawTemplate(template corev1.PodTemplateSpec) (*runtime.RawExtension, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encoding pod template: %w", err)
	}
	return &runtime.RawExtension{Raw: raw}, nil
}

// PodTemplate decodes a template field. Field names are case-sensitive, as
// everywhere in the API, and fields that PodTemplateSpec lacks are left out, so
// what comes back is for looking at, not for storing.
func PodTemplate(raw *runtime.RawExtension) (*corev1.PodTemplateSpec, error) {
	// A client may have sent CBOR, which this makes JSON.
	data, err := raw.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("decoding pod template: %w", err)
	}
	template := &corev1.PodTemplateSpec{}
	if err := utiljson.Unmarshal(data, template); err != nil {
		return nil, fmt.Errorf("decoding pod template: %w", err)
	}
	return template, nil
}

// VolumeClaimTemplate decodes an element of volumeClaimTemplates. As with
// PodTemplate, what comes back is for looking at, not for storing.
func VolumeClaimTemplate(raw *runtime.RawExtension) (*corev1.PersistentVolumeClaim, error) {
	data, err := raw.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("decoding volume claim template: %w", err)
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := utiljson.Unmarshal(data, claim); err != nil {
		return nil, fmt.Errorf("decoding volume claim template: %w", err)
	}
	return claim, nil
}
