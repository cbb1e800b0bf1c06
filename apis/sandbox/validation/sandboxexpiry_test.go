// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestShutdownPolicyOfASandbox(t *testing.T) {
	for policy, want := range map[v1alpha1.ShutdownPolicy][]string{
		"": nil, v1alpha1.ShutdownDelete: nil, v1alpha1.ShutdownRetain: nil,
		v1alpha1.ShutdownDeleteForeground: {`spec.shutdownPolicy: Unsupported value: "DeleteForeground": supported values: "Delete", "Retain"`},
	} {
		changed := sandbox(t, func(s *v1alpha1.Sandbox) { s.Spec.ShutdownPolicy = policy })
		expect(t, ValidateSandbox(changed), want)
		expect(t, ValidateSandboxUpdate(changed, sandbox(t, nil)), want)
		expect(t, ValidateSandboxUpdate(changed, changed), nil)
	}
}

// The next pod of a sandbox of agent-sandbox is made of its template as it is then. What it
// is given in place stays the claim's to say.
func TestTemplateOfASandboxOfAgentSandbox(t *testing.T) {
	const only = "spec.template: " + yet + "changing more of a sandbox's template than its metadata"
	for name, test := range map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"ours":             {nil, []string{only}},
		"of agent-sandbox": {map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}, nil},
		"changed in place": {map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup, v1alpha1.AnnotationInplaceUpdate: "{}"}, []string{only}},
	} {
		t.Run(name, func(t *testing.T) {
			old := sandbox(t, func(s *v1alpha1.Sandbox) { s.Annotations = test.annotations })
			changed := old.DeepCopy()
			changed.Spec.Template = rawJSON(`{"spec":{"containers":[{"name":"a","image":"another"}]}}`)
			expect(t, ValidateSandboxUpdate(changed, old), test.want)
			changed.Spec.Template = rawJSON(`{"spec":{"containers":[]}}`)
			if len(ValidateSandboxUpdate(changed, old)) == 0 {
				t.Error("a template that makes no pod is taken")
			}
		})
	}
}
