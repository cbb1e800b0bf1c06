// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package builders

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Stored objects of the namespace "ns", for tests without a server.

// MainPod returns a pod template that says nothing but the name of its container.
func MainPod() *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"main"}]}}`)}
}

// MainPodWithCPU returns the template of MainPod with a request of cpu.
func MainPodWithCPU(cpu string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%q}}}]}}`, cpu)}
}

// RevisionOf returns the revision of a set without volumes that has a pod template.
func RevisionOf(template *runtime.RawExtension) string {
	revision, err := podtemplate.SetRevision(&v1alpha1.SandboxSet{}, podtemplate.Inline(template))
	if err != nil {
		panic(err)
	}
	return revision
}

// StoredSet returns a set of two sandboxes that refers to a template, or has the template of MainPod if
// that is "". Its UID is its name.
func StoredSet(name, template string, changes ...func(*v1alpha1.SandboxSet)) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "5"},
		Spec:       v1alpha1.SandboxSetSpec{Replicas: new(int32(2))},
	}
	if template == "" {
		set.Spec.Template = MainPod()
	} else {
		set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: template}
	}
	for _, change := range changes {
		change(set)
	}
	return set
}

// Patched gives a set a patch that changes nothing.
func Patched(set *v1alpha1.SandboxSet) { set.Spec.Patch = &runtime.RawExtension{Raw: []byte(`{}`)} }

// Smaller gives a set a patch that makes its sandboxes smaller.
func Smaller(set *v1alpha1.SandboxSet) { set.Spec.Patch = MainPodWithCPU("2") }

// Elsewhere moves a set to another namespace.
func Elsewhere(set *v1alpha1.SandboxSet) { set.Namespace = "other" }

// AtVersion gives a set a resourceVersion.
func AtVersion(v int) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) { set.ResourceVersion = strconv.Itoa(v) }
}

// AtRevision makes a revision that of a set whose controller has observed it.
func AtRevision(revision string) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) {
		set.Generation, set.Status.ObservedGeneration, set.Status.UpdateRevision = 3, 3, revision
	}
}

// NewClaim returns a claim of one sandbox of the set "pool" that is not stored yet. change may be nil.
func NewClaim(change func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine", UID: "claim-uid", Generation: 1},
		Spec:       v1alpha1.SandboxClaimSpec{TemplateName: "pool", Replicas: new(int32(1))},
	}
	if change != nil {
		change(claim)
	}
	return claim
}

// Warm makes a claim wait for a number of warm sandboxes of the template "py".
func Warm(replicas int32) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) {
		c.Spec.TemplateName = ""
		c.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: "py"}
		c.Spec.Replicas, c.Spec.CreateOnNoStock = &replicas, new(false)
	}
}
