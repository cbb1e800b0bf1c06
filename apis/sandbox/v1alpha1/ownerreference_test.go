// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestOwnersInEitherGroup: trap 10, owners are known by group and kind, in the words of
// either group and of any version, and are named in those of the API that was used.
func TestOwnersInEitherGroup(t *testing.T) {
	for _, test := range []struct {
		apiVersion, kind string
		want             string
	}{
		{"agents.kruise.io/v1alpha1", "SandboxSet", "SandboxSet"},
		{"extensions.agents.x-k8s.io/v1beta1", "SandboxWarmPool", "SandboxSet"},
		{"extensions.agents.x-k8s.io/v1", "SandboxWarmPool", "SandboxSet"},
		{"extensions.agents.x-k8s.io/v1beta1", "SandboxSet", ""},
		{"agents.kruise.io/v1alpha1", "SandboxWarmPool", ""},
		{"agents.x-k8s.io/v1beta1", "SandboxWarmPool", ""},
		{"agents.x-k8s.io/v1beta1", "Sandbox", "Sandbox"},
		{"extensions.agents.x-k8s.io/v1beta1", "SandboxClaim", "SandboxClaim"},
		{"example.com/v1", "Sandbox", ""},
		{"v1", "SandboxSet", ""},
	} {
		ref := metav1.OwnerReference{APIVersion: test.apiVersion, Kind: test.kind, Name: "o", UID: "u", Controller: ptr.To(true)}
		if got := v1alpha1.OwnerKind(&ref); got != test.want {
			t.Errorf("%s %s is a %q, want %q", test.apiVersion, test.kind, got, test.want)
		}
		sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{ref}}}
		if got := v1alpha1.IsInPool(sandbox); got != (test.want == "SandboxSet") {
			t.Errorf("with the owner %s %s, in a pool: %v", test.apiVersion, test.kind, got)
		}
		owner := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Name: "o", UID: "u"}}
		if got := v1alpha1.ControlledBy(sandbox, "SandboxSet", owner); got != (test.want == "SandboxSet") {
			t.Errorf("with the owner %s %s, controlled: %v", test.apiVersion, test.kind, got)
		}
		owner.UID = "other"
		if v1alpha1.ControlledBy(sandbox, "SandboxSet", owner) {
			t.Errorf("with the owner %s %s, controlled by another one of the name", test.apiVersion, test.kind)
		}
	}
	agent := metav1.ObjectMeta{Name: "o", UID: "u", Annotations: map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}}
	plain := metav1.ObjectMeta{Name: "o", UID: "u"}
	for want, ref := range map[string]*metav1.OwnerReference{
		"agents.kruise.io/v1alpha1 Sandbox":               v1alpha1.OwnedBySandbox(&v1alpha1.Sandbox{ObjectMeta: plain}),
		"agents.x-k8s.io/v1beta1 Sandbox":                 v1alpha1.OwnedBySandbox(&v1alpha1.Sandbox{ObjectMeta: agent}),
		"agents.kruise.io/v1alpha1 SandboxClaim":          v1alpha1.OwnedByClaim(&v1alpha1.SandboxClaim{ObjectMeta: plain}),
		"extensions.agents.x-k8s.io/v1beta1 SandboxClaim": v1alpha1.OwnedByClaim(&v1alpha1.SandboxClaim{ObjectMeta: agent}),
	} {
		if got := ref.APIVersion + " " + ref.Kind; got != want || !*ref.Controller || ref.UID != "u" || ref.Name != "o" {
			t.Errorf("got %+v, want %s", ref, want)
		}
	}
}
