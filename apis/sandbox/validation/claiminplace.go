// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxImage is how long the name of an image may be: it is stored with each sandbox.
// Registries take 255 characters, a tag of 128 and a digest.
const maxImage = 1024

// validateInplaceUpdate checks what a claim changes of its sandboxes, unless it is what
// the claim says already.
func validateInplaceUpdate(update, old *v1alpha1.SandboxClaimInplaceUpdateOptions, path *field.Path) field.ErrorList {
	if apiequality.Semantic.DeepEqual(update, old) {
		return nil
	}
	r := update.Resources
	if update.Image == "" && (r == nil || len(r.Requests)+len(r.Limits) == 0) {
		return field.ErrorList{field.Required(path, "image or resources")}
	}
	errs := validateImage(update.Image, path.Child("image"))
	if r == nil {
		return errs
	}
	path = path.Child("resources")
	errs = append(errs, validateCPU(r.Requests, path.Child("requests"))...)
	errs = append(errs, validateCPU(r.Limits, path.Child("limits"))...)
	request, requests := r.Requests[corev1.ResourceCPU]
	limit, limits := r.Limits[corev1.ResourceCPU]
	if len(errs) == 0 && requests && limits && request.Cmp(limit) > 0 {
		errs = append(errs, field.Invalid(path.Child("requests").Key("cpu"), request.String(),
			fmt.Sprintf("must not be more than the cpu limit, %s", limit.String())))
	}
	return errs
}

// validateImage checks the name of an image as Kubernetes does. Empty is none.
func validateImage(image string, path *field.Path) field.ErrorList {
	switch {
	case len(image) > maxImage:
		return field.ErrorList{field.TooLong(path, "", maxImage)}
	case image != strings.TrimSpace(image):
		return field.ErrorList{field.Invalid(path, image, "must not have leading or trailing whitespace")}
	}
	return nil
}

// validateCPU checks the cpu of a list, which is the only resource in it that is applied.
func validateCPU(list corev1.ResourceList, path *field.Path) field.ErrorList {
	if cpu, ok := list[corev1.ResourceCPU]; ok && cpu.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path.Key("cpu"), cpu.String(), "must be greater than 0")}
	}
	return nil
}
