// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// AskedOf returns the name that a claim asks for, and reports whether it is surely
// that of a SandboxTemplate: spec.templateName may be a SandboxSet's as well, and
// spec.warmPoolRef is always one's.
func AskedOf(claim *SandboxClaim) (name string, byRef bool) {
	if ref := claim.Spec.WarmPoolRef; ref != nil {
		return ref.Name, false
	}
	if ref := claim.Spec.SandboxTemplateRef; ref != nil {
		return ref.Name, true
	}
	return claim.Spec.TemplateName, false
}

// SandboxTemplateOf is the name of the SandboxTemplate that a set refers to, or empty:
// it may have a template of its own, or refer to a PodTemplate.
func SandboxTemplateOf(set *SandboxSet) string {
	ref := set.Spec.TemplateRef
	if ref == nil || set.Spec.Template != nil || ref.Kind != "" && ref.Kind != TemplateKindSandboxTemplate {
		return ""
	}
	return ref.Name
}
