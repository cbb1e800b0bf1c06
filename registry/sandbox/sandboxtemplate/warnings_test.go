// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// Each write warns of what a template asks for and does not get, and not again
// where a set makes a copy of itself.
func TestWarnings(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.SandboxTemplate)
		want   string
	}{
		"nothing": {func(*v1alpha1.SandboxTemplate) {}, ""},
		"rules": {func(s *v1alpha1.SandboxTemplate) {
			s.Spec.NetworkPolicy = &v1alpha1.SandboxNetworkPolicy{}
		}, ""},
		"rules that are not applied": {func(s *v1alpha1.SandboxTemplate) {
			s.Spec.NetworkPolicy, s.Spec.NetworkPolicyManagement = &v1alpha1.SandboxNetworkPolicy{}, v1alpha1.NetworkPolicyUnmanaged
		}, "spec.networkPolicy: "},
		"contents": {func(s *v1alpha1.SandboxTemplate) { s.Spec.PersistentContents = []string{"memory"} }, "spec.persistentContents: "},
		"contents of a revision": {func(s *v1alpha1.SandboxTemplate) {
			s.Spec.PersistentContents = []string{"memory"}
			s.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "x", Controller: new(true),
			}}
		}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			template := registrytest.NewSandboxTemplate("a")
			tc.change(template)
			for how, got := range map[string][]string{
				"create": newStrategy().WarningsOnCreate(t.Context(), template),
				"update": newStrategy().WarningsOnUpdate(t.Context(), template, template.DeepCopy()),
			} {
				if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], tc.want)) {
					t.Errorf("%s: %q, want %q", how, got, tc.want)
				}
			}
		})
	}
}

// Only who changes a template can take something from sandboxes that run.
func TestWarningsOfAChange(t *testing.T) {
	before := registrytest.NewSandboxTemplate("a")
	after := before.DeepCopy()
	after.Spec.NetworkPolicyManagement = v1alpha1.NetworkPolicyManaged
	if got := newStrategy().WarningsOnUpdate(t.Context(), after, before); len(got) != 1 || !strings.Contains(got[0], "name servers") {
		t.Errorf("update: %q", got)
	}
	if got := newStrategy().WarningsOnCreate(t.Context(), after); len(got) > 0 {
		t.Errorf("create: %q", got)
	}
}
