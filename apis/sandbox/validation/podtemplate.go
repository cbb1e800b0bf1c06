// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxTemplateSize is how many bytes a pod template may take. Each sandbox carries
// its own copy, and a transaction that binds sandboxes writes those copies, so a
// template has to stay well below the 1.5 MiB of a request to etcd.
const maxTemplateSize = 256 << 10

// maxPatchSize is how many bytes a patch of a pod template may take.
const maxPatchSize = 64 << 10

// maxListObjects and maxListScalars are how many elements a list in a pod template or a
// patch may have. To merge two lists by key takes as many steps as the product of their
// lengths, and that in a request.
const (
	maxListObjects = 256
	maxListScalars = 1024
)

// MaxVolumeClaimTemplates is well above what a node can attach to a pod. It also
// bounds what the start of one sandbox may create.
const MaxVolumeClaimTemplates = 64

// MaxVolumeClaimTemplatesSize is how many bytes the volume claim templates of a sandbox may
// take together.
const MaxVolumeClaimTemplatesSize = maxTemplateSize

// ValidatePodTemplate finds the mistakes that a template can be seen to have
// without a cluster. What a pod may be is decided by the cluster that runs it,
// and its rules change with its version.
func ValidatePodTemplate(raw *runtime.RawExtension, path *field.Path) field.ErrorList {
	if len(raw.Raw) > maxTemplateSize {
		return field.ErrorList{field.TooLong(path, "", maxTemplateSize)}
	}
	if err := ValidateLists(decodeRaw(raw), path); err != nil {
		return field.ErrorList{err}
	}
	template, err := v1alpha1.PodTemplate(raw)
	if err != nil {
		return field.ErrorList{undecodable(err, path)}
	}
	errs := validateTemplateMetadata(&template.ObjectMeta, path.Child("metadata"))
	return append(errs, validateContainers(&template.Spec, path.Child("spec"))...)
}

// validatePatch checks the form of a patch on a pod template: a JSON object that is no
// larger than can be merged while a request waits. What it does to a template is seen once
// that is found.
func validatePatch(patch *runtime.RawExtension, path *field.Path) field.ErrorList {
	if len(patch.Raw) > maxPatchSize {
		return field.ErrorList{field.TooLong(path, "", maxPatchSize)}
	}
	object, ok := decodeRaw(patch).(map[string]any)
	if !ok {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must be an object: a strategic merge patch on a pod template")}
	}
	if err := ValidateLists(object, path); err != nil {
		return field.ErrorList{err}
	}
	return nil
}

// ValidateLists returns an error for a list with too many elements in a pod template or a
// patch, as decoded JSON, whatever the list is for: at most 256 objects, or 1024 other
// values. Lists are merged by key in a request, in as many steps as the product of their
// lengths.
func ValidateLists(value any, path *field.Path) *field.Error {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if err := ValidateLists(value[key], path.Child(key)); err != nil {
				return err
			}
		}
	case []any:
		limit := maxListScalars
		if slices.ContainsFunc(value, isObject) {
			limit = maxListObjects
		}
		if len(value) > limit {
			return field.TooMany(path, len(value), limit)
		}
		for i, element := range value {
			if err := ValidateLists(element, path.Index(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func isObject(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}

// undecodable names the field that does not decode, as far as the decoder knows
// it. The template itself is left out of the message: it can be long.
func undecodable(err error, path *field.Path) *field.Error {
	var typeErr *json.UnmarshalTypeError
	if errors.As(err, &typeErr) && typeErr.Field != "" {
		path = path.Child(typeErr.Field)
		err = fmt.Errorf("%s where %s is expected", typeErr.Value, typeErr.Type)
	}
	return field.Invalid(path, field.OmitValueType{}, err.Error())
}

func validateTemplateMetadata(meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	labels, annotations := path.Child("labels"), path.Child("annotations")
	errs := metav1validation.ValidateLabels(meta.Labels, labels)
	errs = append(errs, apivalidation.ValidateAnnotations(meta.Annotations, annotations)...)
	errs = append(errs, refuseE2BKeys(meta.Labels, labels)...)
	return append(errs, refuseE2BKeys(meta.Annotations, annotations)...)
}

// refuseE2BKeys keeps the keys of the E2B front end off templates: they
// describe one sandbox, and a template would put them on all.
func refuseE2BKeys(values map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if strings.HasPrefix(key, v1alpha1.E2BKeyPrefix) {
			errs = append(errs, field.Forbidden(path.Key(key),
				fmt.Sprintf("keys under %s are not allowed in a template", v1alpha1.E2BKeyPrefix)))
		}
	}
	return errs
}

func validateContainers(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	containers := path.Child("containers")
	if len(spec.Containers) == 0 {
		return field.ErrorList{field.Required(containers, "at least one container is required")}
	}
	// Init containers share the name space of the others.
	seen := make(map[string]bool, len(spec.InitContainers)+len(spec.Containers))
	errs := validateContainerList(spec.InitContainers, path.Child("initContainers"), seen)
	return append(errs, validateContainerList(spec.Containers, containers, seen)...)
}

func validateContainerList(containers []corev1.Container, path *field.Path, seen map[string]bool) field.ErrorList {
	var errs field.ErrorList
	for i := range containers {
		container := &containers[i]
		name, image := path.Index(i).Child("name"), path.Index(i).Child("image")
		switch {
		case container.Name == "":
			errs = append(errs, field.Required(name, ""))
		case seen[container.Name]:
			errs = append(errs, field.Duplicate(name, container.Name))
		default:
			for _, msg := range validation.IsDNS1123Label(container.Name) {
				errs = append(errs, field.Invalid(name, container.Name, msg))
			}
		}
		seen[container.Name] = true
		switch {
		case container.Image == "":
			errs = append(errs, field.Required(image, ""))
		case strings.TrimSpace(container.Image) != container.Image:
			errs = append(errs, field.Invalid(image, container.Image, "must not have leading or trailing whitespace"))
		}
	}
	return errs
}

// ValidateVolumeClaimTemplates finds the mistakes that volume claims can be seen
// to have without a cluster.
func ValidateVolumeClaimTemplates(templates []runtime.RawExtension, path *field.Path) field.ErrorList {
	if len(templates) > MaxVolumeClaimTemplates {
		return field.ErrorList{field.TooMany(path, len(templates), MaxVolumeClaimTemplates)}
	}
	var errs field.ErrorList
	size, seen := 0, sets.Set[string]{}
	for i := range templates {
		size += len(templates[i].Raw)
		if size > maxTemplateSize {
			return append(errs, field.TooLong(path, "", maxTemplateSize))
		}
		claim, err := v1alpha1.VolumeClaimTemplate(&templates[i])
		if err != nil {
			errs = append(errs, undecodable(err, path.Index(i)))
			continue
		}
		errs = append(errs, validateVolumeClaim(claim, seen, path.Index(i))...)
		seen.Insert(claim.Name)
	}
	return errs
}

func validateVolumeClaim(claim *corev1.PersistentVolumeClaim, seen sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	metadata := path.Child("metadata")
	name := metadata.Child("name")
	switch {
	case claim.Name == "":
		errs = append(errs, field.Required(name, "also the name of the volume in the pod"))
	case seen.Has(claim.Name):
		errs = append(errs, field.Duplicate(name, claim.Name))
	default:
		for _, msg := range validation.IsDNS1123Label(claim.Name) {
			errs = append(errs, field.Invalid(name, claim.Name, msg))
		}
	}
	errs = append(errs, metav1validation.ValidateLabels(claim.Labels, metadata.Child("labels"))...)
	errs = append(errs, apivalidation.ValidateAnnotations(claim.Annotations, metadata.Child("annotations"))...)
	storage := path.Child("spec", "resources", "requests").Key(string(corev1.ResourceStorage))
	switch size, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]; {
	case !ok:
		errs = append(errs, field.Required(storage, ""))
	case size.Sign() <= 0:
		errs = append(errs, field.Invalid(storage, size.String(), "must be greater than zero"))
	}
	return errs
}

// UnmountedWarnings returns a warning for each volume claim template that no container of the
// pod template mounts: each sandbox has the volume, and cannot use it.
func UnmountedWarnings(embedded *v1alpha1.EmbeddedSandboxTemplate) []string {
	var warnings []string
	for _, err := range ValidateMounted(embedded.Template, embedded.VolumeClaimTemplates, specPath.Child("volumeClaimTemplates")) {
		warnings = append(warnings, fmt.Sprintf("%s: no container of the template mounts %v", err.Field, err.BadValue))
	}
	return warnings
}

// ValidateMounted refuses volumes that no container of a pod template mounts: a mistake
// that costs a volume for every sandbox. OpenKruise Agents refuses them in SandboxSets. A
// template that does not decode is reported elsewhere.
func ValidateMounted(raw *runtime.RawExtension, claims []runtime.RawExtension, path *field.Path) field.ErrorList {
	if raw == nil || len(claims) == 0 {
		return nil
	}
	template, err := v1alpha1.PodTemplate(raw)
	if err != nil {
		return nil
	}
	mounted := sets.Set[string]{}
	for _, containers := range [][]corev1.Container{template.Spec.InitContainers, template.Spec.Containers} {
		for i := range containers {
			for _, mount := range containers[i].VolumeMounts {
				mounted.Insert(mount.Name)
			}
			for _, device := range containers[i].VolumeDevices {
				mounted.Insert(device.Name)
			}
		}
	}
	var errs field.ErrorList
	for i := range claims {
		claim, err := v1alpha1.VolumeClaimTemplate(&claims[i])
		if err == nil && claim.Name != "" && !mounted.Has(claim.Name) {
			errs = append(errs, field.Invalid(path.Index(i).Child("metadata", "name"), claim.Name,
				"must be mounted by a container of the template (volumeMounts or volumeDevices)"))
		}
	}
	return errs
}
