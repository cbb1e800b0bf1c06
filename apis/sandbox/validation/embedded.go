// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// An update is checked for what it changes. What is stored was legal once, or was
// made by the server itself; to check it again would keep users from changing
// the rest of the object, and from taking its finalizers away.

var pauseStrategyTypes = []v1alpha1.PauseStrategyType{v1alpha1.PauseStrategyStop, v1alpha1.PauseStrategyHibernate}

var persistentContents = []string{
	v1alpha1.PersistentContentIP, v1alpha1.PersistentContentMemory, v1alpha1.PersistentContentFilesystem,
}

// maxRuntimes is well above the handful of runtimes that exist. Lists without a
// bound end as an object too large to store, with an error that names no field.
const maxRuntimes = 64

// validateEmbeddedTemplate checks that there is one source of the pod template, and
// what can be seen of it here: what a reference leads to is for others to find.
func validateEmbeddedTemplate(embedded *v1alpha1.EmbeddedSandboxTemplate, path *field.Path) field.ErrorList {
	templatePath, refPath := path.Child("template"), path.Child("templateRef")
	switch {
	case embedded.Template != nil && embedded.TemplateRef != nil:
		return field.ErrorList{field.Forbidden(refPath, "templateRef and podtemplate is mutual exclusive")}
	case embedded.Template != nil:
		return ValidatePodTemplate(embedded.Template, templatePath)
	case embedded.TemplateRef != nil:
		return validateTemplateRef(embedded.TemplateRef, refPath)
	}
	return field.ErrorList{field.Required(templatePath, "template is required")}
}

func validateChangedTemplate(embedded, old *v1alpha1.EmbeddedSandboxTemplate, path *field.Path) field.ErrorList {
	if sameSource(embedded, old) && !growsTooLarge(sizeOf(embedded.Template), sizeOf(old.Template)) {
		return nil
	}
	return validateEmbeddedTemplate(embedded, path)
}

// growsTooLarge reports whether an update makes a text too large. A text can grow although it
// decodes to the same: a quantity may have any number of leading zeros.
func growsTooLarge(size, old int) bool { return size > maxTemplateSize && size > old }

func sizeOf(raw *runtime.RawExtension) int {
	if raw == nil {
		return 0
	}
	return len(raw.Raw)
}

func sizeOfAll(list []runtime.RawExtension) int {
	size := 0
	for i := range list {
		size += len(list[i].Raw)
	}
	return size
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

func validateChangedClaims(embedded, old *v1alpha1.EmbeddedSandboxTemplate, path *field.Path) field.ErrorList {
	if sameClaims(embedded, old) && !growsTooLarge(sizeOfAll(embedded.VolumeClaimTemplates), sizeOfAll(old.VolumeClaimTemplates)) {
		return nil
	}
	return ValidateVolumeClaimTemplates(embedded.VolumeClaimTemplates, path.Child("volumeClaimTemplates"))
}

// validateChangedPause takes the type Stop, which is also the default.
func validateChangedPause(strategy, old *v1alpha1.PauseStrategy, path *field.Path) field.ErrorList {
	if strategy == nil || reflect.DeepEqual(strategy, old) {
		return nil
	}
	path = path.Child("pauseStrategy")
	kind := path.Child("type")
	switch strategy.Type {
	case "", v1alpha1.PauseStrategyStop:
		if strategy.HibernateStrategy != nil {
			return field.ErrorList{field.Forbidden(path.Child("hibernateStrategy"), "only with type Hibernate")}
		}
		return nil
	case v1alpha1.PauseStrategyHibernate:
		return field.ErrorList{field.Forbidden(kind, unservedMessage("pausing by Hibernate; use Stop"))}
	default:
		return validateEnum(strategy.Type, pauseStrategyTypes, kind)
	}
}

func validateChangedContents(contents, old []string, path *field.Path) field.ErrorList {
	if slices.Equal(contents, old) {
		return nil
	}
	path = path.Child("persistentContents")
	if len(contents) > len(persistentContents) {
		return field.ErrorList{field.TooMany(path, len(contents), len(persistentContents))}
	}
	var errs field.ErrorList
	for i, content := range contents {
		if slices.Contains(contents[:i], content) {
			errs = append(errs, field.Duplicate(path.Index(i), content))
			continue
		}
		errs = append(errs, validateEnum(content, persistentContents, path.Index(i))...)
	}
	return errs
}

// PersistenceWarnings names what a pause does not keep although it is asked for:
// there is only the type Stop yet, which deletes the pod.
func PersistenceWarnings(contents []string) []string {
	if len(contents) == 0 {
		return nil
	}
	return []string{specPath.Child("persistentContents").String() +
		": a pause of type Stop keeps the contents of volumeClaimTemplates alone: no address, no memory, no other files"}
}

// validateChangedRuntimes checks the runtimes that are put into pods. Whether the
// installation has them is seen when a pod is made: they may come later.
func validateChangedRuntimes(runtimes, old []v1alpha1.RuntimeConfig, path *field.Path) field.ErrorList {
	if slices.Equal(runtimes, old) {
		return nil
	}
	path = path.Child("runtimes")
	if errs := validateRuntimes(runtimes, path); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i, runtime := range runtimes {
		name := path.Index(i).Child("name")
		if slices.Contains(runtimes[:i], runtime) {
			errs = append(errs, field.Duplicate(name, runtime.Name))
			continue
		}
		for _, msg := range validation.IsDNS1123Label(runtime.Name) {
			errs = append(errs, field.Invalid(name, runtime.Name, msg))
		}
	}
	return errs
}

// validateRuntimes checks the runtimes of a claim, which are accepted and have no
// effect, as with OpenKruise Agents.
func validateRuntimes(runtimes []v1alpha1.RuntimeConfig, path *field.Path) field.ErrorList {
	if len(runtimes) > maxRuntimes {
		return field.ErrorList{field.TooMany(path, len(runtimes), maxRuntimes)}
	}
	var errs field.ErrorList
	for i, runtime := range runtimes {
		if runtime.Name == "" {
			errs = append(errs, field.Required(path.Index(i).Child("name"), ""))
		}
	}
	return errs
}

func samePods(a, b *v1alpha1.EmbeddedSandboxTemplate) bool {
	return sameSource(a, b) && sameClaims(a, b)
}

// sameSource reports whether pods are made from the same template.
func sameSource(a, b *v1alpha1.EmbeddedSandboxTemplate) bool {
	if !reflect.DeepEqual(a.TemplateRef, b.TemplateRef) {
		return false
	}
	return v1alpha1.SamePodTemplate(a.Template, b.Template)
}

func sameClaims(a, b *v1alpha1.EmbeddedSandboxTemplate) bool {
	return sameVolumeClaims(a.VolumeClaimTemplates, b.VolumeClaimTemplates)
}

// sameVolumeClaims reports whether two lists of volume claim templates decode to the same.
func sameVolumeClaims(a, b []runtime.RawExtension) bool {
	return slices.EqualFunc(a, b, func(a, b runtime.RawExtension) bool { return v1alpha1.SameVolumeClaimTemplate(&a, &b) })
}
