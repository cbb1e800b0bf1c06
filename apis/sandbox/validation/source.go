// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// validateEmbeddedTemplate checks that there is one source of the pod template, and
// what can be seen of it here: what a reference leads to is for others to find.
func validateEmbeddedTemplate(embedded *v1alpha1.EmbeddedSandboxTemplate, path *field.Path) field.ErrorList {
	templatePath, refPath := path.Child("template"), path.Child("templateRef")
	switch {
	case embedded.Template != nil && embedded.TemplateRef != nil:
		return field.ErrorList{field.Forbidden(refPath, "templateRef and podtemplate is mutual exclusive")}
	case embedded.Template != nil:
		return validatePodTemplate(embedded.Template, templatePath)
	case embedded.TemplateRef != nil:
		return validateTemplateRef(embedded.TemplateRef, refPath)
	}
	return field.ErrorList{field.Required(templatePath, "template is required")}
}

// validateTemplateRef takes the two kinds that hold a pod template, each by its
// own version or by none.
func validateTemplateRef(ref *v1alpha1.SandboxTemplateRef, path *field.Path) field.ErrorList {
	errs := validateReference(ref.Name, path.Child("name"))
	version := v1alpha1.SchemeGroupVersion.String()
	switch ref.Kind {
	case "", v1alpha1.TemplateKindSandboxTemplate:
	case v1alpha1.TemplateKindPodTemplate:
		version = "v1"
	default:
		return append(errs, field.NotSupported(path.Child("kind"), ref.Kind,
			[]string{v1alpha1.TemplateKindSandboxTemplate, v1alpha1.TemplateKindPodTemplate}))
	}
	if ref.APIVersion != "" && ref.APIVersion != version {
		errs = append(errs, field.NotSupported(path.Child("apiVersion"), ref.APIVersion, []string{version}))
	}
	return errs
}

// validateNoSelfReference finds the shortest circle, which needs no look at any
// other object.
func validateNoSelfReference(template *v1alpha1.SandboxTemplate, path *field.Path) field.ErrorList {
	ref := template.Spec.TemplateRef
	if ref == nil || ref.Kind == v1alpha1.TemplateKindPodTemplate || ref.Name == "" || ref.Name != template.Name {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("name"), ref.Name, "a template cannot refer to itself")}
}

// validateSetReference keeps to the names that fit into the label by which the
// sandboxes of all sets of one template are found.
func validateSetReference(ref *v1alpha1.SandboxTemplateRef, path *field.Path) field.ErrorList {
	if ref == nil || len(ref.Name) <= validation.LabelValueMaxLength || len(ref.Name) > validation.DNS1123SubdomainMaxLength {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("name"), ref.Name, fmt.Sprintf(
		"must be no more than %d characters, because it is also the value of a label on sandboxes", validation.LabelValueMaxLength))}
}

// ValidateResolvedTemplate checks the pod template that references, and a patch,
// have led to, with the rules of one that stands in the object itself.
func ValidateResolvedTemplate(template *runtime.RawExtension, path *field.Path) field.ErrorList {
	return validatePodTemplate(template, path)
}

// ValidateMounted checks that the containers of a resolved pod template mount the
// volumes that come to it.
func ValidateMounted(template *runtime.RawExtension, claims []runtime.RawExtension, path *field.Path) field.ErrorList {
	return validateMounted(&v1alpha1.EmbeddedSandboxTemplate{Template: template, VolumeClaimTemplates: claims}, path)
}

func validateChangedPatch(spec, old *v1alpha1.SandboxSetSpec, path *field.Path) field.ErrorList {
	if samePatch(spec.Patch, old.Patch) && (spec.TemplateRef == nil) == (old.TemplateRef == nil) {
		return nil
	}
	return validatePatch(spec, path)
}

// validatePatch checks the form of a patch. What it does to a template is seen
// once that is found.
func validatePatch(spec *v1alpha1.SandboxSetSpec, path *field.Path) field.ErrorList {
	switch patch := spec.Patch; {
	case patch == nil:
		return nil
	case spec.TemplateRef == nil:
		return field.ErrorList{field.Forbidden(path, "only together with templateRef; a template of the set's own can be changed itself")}
	case len(patch.Raw) > MaxTemplateSize:
		return field.ErrorList{field.TooLong(path, "", MaxTemplateSize)}
	default:
		if _, ok := decodeRaw(patch).(map[string]any); !ok {
			return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must be an object: a strategic merge patch on a pod template")}
		}
		return nil
	}
}

func samePatch(a, b *runtime.RawExtension) bool {
	if a == nil || b == nil {
		return a == b
	}
	return sameJSON(*a, *b)
}
