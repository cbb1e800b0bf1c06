// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestValidateReferenceOfASet(t *testing.T) {
	tests := map[string]struct {
		ref  v1alpha1.SandboxTemplateRef
		want []string
	}{
		"name":                {ref: v1alpha1.SandboxTemplateRef{Name: "t"}},
		"of its own name":     {ref: v1alpha1.SandboxTemplateRef{Name: "pool"}},
		"all of it":           {ref: v1alpha1.SandboxTemplateRef{Name: "t", Kind: "SandboxTemplate", APIVersion: "agents.kruise.io/v1alpha1"}},
		"version alone":       {ref: v1alpha1.SandboxTemplateRef{Name: "t", APIVersion: "agents.kruise.io/v1alpha1"}},
		"PodTemplate":         {ref: v1alpha1.SandboxTemplateRef{Name: "t", Kind: "PodTemplate"}},
		"PodTemplate with v1": {ref: v1alpha1.SandboxTemplateRef{Name: "t", Kind: "PodTemplate", APIVersion: "v1"}},

		"no name": {want: []string{"spec.templateRef.name: Required value"}},
		"no name at all": {
			ref:  v1alpha1.SandboxTemplateRef{Name: "A b"},
			want: []string{"spec.templateRef.name: Invalid value: \"A b\": "},
		},
		"a name too long for a label": {
			ref:  v1alpha1.SandboxTemplateRef{Name: strings.Repeat("a", 64)},
			want: []string{"spec.templateRef.name: Invalid value: \"" + strings.Repeat("a", 64) + "\": must be no more than 63 characters"},
		},
		"a name too long for anything": {
			ref:  v1alpha1.SandboxTemplateRef{Name: strings.Repeat("a", 254)},
			want: []string{"spec.templateRef.name: Too long: "},
		},
		"another kind": {
			ref:  v1alpha1.SandboxTemplateRef{Name: "t", Kind: "SandboxSet"},
			want: []string{"spec.templateRef.kind: Unsupported value: \"SandboxSet\": supported values: \"SandboxTemplate\", \"PodTemplate\""},
		},
		"the version of the other kind": {
			ref:  v1alpha1.SandboxTemplateRef{Name: "t", APIVersion: "v1"},
			want: []string{"spec.templateRef.apiVersion: Unsupported value: \"v1\": supported values: \"agents.kruise.io/v1alpha1\""},
		},
		"PodTemplate of our version": {
			ref:  v1alpha1.SandboxTemplateRef{Name: "t", Kind: "PodTemplate", APIVersion: "agents.kruise.io/v1alpha1"},
			want: []string{"spec.templateRef.apiVersion: Unsupported value: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := set(t, func(s *v1alpha1.SandboxSet) { s.Spec.Template, s.Spec.TemplateRef = nil, &tc.ref })
			expect(t, ValidateSandboxSet(changed), tc.want)
			expect(t, ValidateSandboxSetUpdate(changed, set(t, nil)), tc.want)
			expect(t, ValidateSandboxSetUpdate(changed, changed), nil) // what is stored already bothers nobody
		})
	}
}

func TestValidatePatch(t *testing.T) {
	tests := map[string]struct {
		patch  string
		inline bool
		want   []string
	}{
		"empty":      {patch: "{}"},
		"fields":     {patch: `{"metadata":{"labels":{"size":"large"}},"spec":{"fromTheFuture":[1]}}`},
		"directives": {patch: `{"spec":{"containers":[{"name":"a","$patch":"delete"}],"nodeSelector":null}}`},
		"with an inline template": {
			patch: "{}", inline: true,
			want: []string{"spec.patch: Forbidden: only together with templateRef"},
		},
		"a list":   {patch: "[]", want: []string{"spec.patch: Invalid value: must be an object"}},
		"a string": {patch: `"{}"`, want: []string{"spec.patch: Invalid value: must be an object"}},
		"no JSON":  {patch: "{", want: []string{"spec.patch: Invalid value: must be an object"}},
		"too large": {
			patch: `{"spec":{"hostname":"` + strings.Repeat("x", MaxTemplateSize) + `"}}`,
			want:  []string{"spec.patch: Too long: may not be more than 262144 bytes"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := set(t, func(s *v1alpha1.SandboxSet) {
				s.Spec.Patch = rawJSON(tc.patch)
				if !tc.inline {
					s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "t"}
				}
			})
			expect(t, ValidateSandboxSet(changed), tc.want)
			expect(t, ValidateSandboxSetUpdate(changed, set(t, nil)), tc.want)
			expect(t, ValidateSandboxSetUpdate(changed, changed), nil)
		})
	}
}

// TestReferenceToInline: the patch that fitted the reference is left over.
func TestReferenceToInline(t *testing.T) {
	old := set(t, func(s *v1alpha1.SandboxSet) {
		s.Spec.Template, s.Spec.TemplateRef, s.Spec.Patch = nil, &v1alpha1.SandboxTemplateRef{Name: "t"}, rawJSON("{}")
	})
	changed := set(t, func(s *v1alpha1.SandboxSet) { s.Spec.Patch = rawJSON("{}") })
	expect(t, ValidateSandboxSetUpdate(changed, old), []string{"spec.patch: Forbidden: only together with templateRef"})
}
