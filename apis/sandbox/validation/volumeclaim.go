// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// MaxVolumeClaimTemplates is well above what a node can attach to a pod. It also
// bounds what the start of one sandbox may create.
const MaxVolumeClaimTemplates = 64

// validateVolumeClaimTemplates finds the mistakes that volume claims can be seen
// to have without a cluster.
func validateVolumeClaimTemplates(templates []runtime.RawExtension, path *field.Path) field.ErrorList {
	if len(templates) > MaxVolumeClaimTemplates {
		return field.ErrorList{field.TooMany(path, len(templates), MaxVolumeClaimTemplates)}
	}
	var errs field.ErrorList
	size, seen := 0, sets.Set[string]{}
	for i := range templates {
		size += len(templates[i].Raw)
		if size > MaxTemplateSize {
			return append(errs, field.TooLong(path, "", MaxTemplateSize))
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

// validateMounted refuses volumes that no container would see: a slip of the pen
// that costs a volume for every sandbox. What does not decode is reported
// elsewhere.
func validateMounted(embedded *v1alpha1.EmbeddedSandboxTemplate, path *field.Path) field.ErrorList {
	if embedded.Template == nil || len(embedded.VolumeClaimTemplates) == 0 {
		return nil
	}
	template, err := v1alpha1.PodTemplate(embedded.Template)
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
	for i := range embedded.VolumeClaimTemplates {
		claim, err := v1alpha1.VolumeClaimTemplate(&embedded.VolumeClaimTemplates[i])
		if err == nil && claim.Name != "" && !mounted.Has(claim.Name) {
			errs = append(errs, field.Invalid(path.Index(i).Child("metadata", "name"), claim.Name,
				"must be mounted by a container of the template (volumeMounts or volumeDevices)"))
		}
	}
	return errs
}
