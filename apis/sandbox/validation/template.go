// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// ValidateSandboxTemplate checks a new template.
func ValidateSandboxTemplate(template *v1alpha1.SandboxTemplate) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&template.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, metadataPath)
	return append(errs, validateTemplateSpec(&template.Spec, specPath)...)
}

// ValidateSandboxTemplateUpdate checks a changed template.
func ValidateSandboxTemplateUpdate(template, old *v1alpha1.SandboxTemplate) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&template.ObjectMeta, &old.ObjectMeta, metadataPath)
	return append(errs, validateTemplateSpec(&template.Spec, specPath)...)
}

func validateTemplateSpec(spec *v1alpha1.SandboxTemplateSpec, path *field.Path) field.ErrorList {
	errs := validateEmbeddedTemplate(&spec.EmbeddedSandboxTemplate, path)
	return append(errs, refuseUnserved(unservedInTemplate(spec), path)...)
}
