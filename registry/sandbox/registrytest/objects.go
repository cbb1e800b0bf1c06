// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// PodTemplate is a pod template with one container, in canonical form.
func PodTemplate() *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"image":"busybox:1","name":"main"}]}}`)}
}

// NewSandbox returns a valid sandbox in Namespace, with defaults.
func NewSandbox(name string) *v1alpha1.Sandbox {
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	sandbox.Spec.Template = PodTemplate()
	return sandbox
}

// NewSandboxSet returns a valid set in Namespace, with defaults.
func NewSandboxSet(name string) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	set.Spec.Replicas = ptr.To[int32](2)
	set.Spec.Template = PodTemplate()
	v1alpha1.SetDefaults_SandboxSet(set)
	return set
}

// NewSandboxTemplate returns a valid template in Namespace, with defaults.
func NewSandboxTemplate(name string) *v1alpha1.SandboxTemplate {
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	template.Spec.Template = PodTemplate()
	return template
}

// NewSandboxClaim returns a valid claim of one sandbox from the set "pool" in
// Namespace, with defaults.
func NewSandboxClaim(name string) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	claim.Spec.TemplateName = "pool"
	v1alpha1.SetDefaults_SandboxClaim(claim)
	return claim
}
