// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package builders is for tests only: it makes objects that are valid and small, which
// a test changes where it needs something else.
package builders

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// PodTemplate returns a pod template with one container, in canonical form.
func PodTemplate() *runtime.RawExtension {
	return PodTemplateOf("busybox:1")
}

// PodTemplateOf returns the template of PodTemplate with an image.
func PodTemplateOf(image string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"containers":[{"image":%q,"name":"main"}]}}`, image)}
}

// Sandbox returns a sandbox with the template of PodTemplate.
func Sandbox(name string) *v1alpha1.Sandbox {
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name}}
	sandbox.Spec.Template = PodTemplate()
	return sandbox
}

// Set returns a set of sandboxes with the template of PodTemplate.
func Set(name string, replicas int32) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Replicas = &replicas
	set.Spec.Template = PodTemplate()
	return set
}

// Template returns a SandboxTemplate with the template of PodTemplate.
func Template(name string) *v1alpha1.SandboxTemplate {
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	template.Spec.Template = PodTemplate()
	return template
}

// LargeTemplate returns a SandboxTemplate with a pod template of some 200 KiB.
func LargeTemplate(name string) *v1alpha1.SandboxTemplate {
	large := Template(name)
	large.Spec.Template.Raw = fmt.Appendf(nil, `{"spec":{"containers":[{"name":"main","image":"busybox","env":[%s]}]}}`,
		strings.Join(slices.Repeat([]string{`{"name":"A","value":"` + strings.Repeat("x", 1000) + `"}`}, 200), ","))
	return large
}

// Claim returns a claim of the sandboxes of the set "pool" that waits for warm ones.
func Claim(name string, replicas int32) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Spec.TemplateName = "pool"
	claim.Spec.Replicas = &replicas
	claim.Spec.CreateOnNoStock = new(false)
	return claim
}
