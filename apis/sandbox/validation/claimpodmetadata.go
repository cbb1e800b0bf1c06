// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// restrictedDomains are those that additionalPodMetadata may have no keys of, with all
// domains below them.
var restrictedDomains = []string{"kubernetes.io", "k8s.io", "agents.x-k8s.io"}

// validateAdditionalPodMetadata checks what a claim puts on its pods alone. How much that
// may be is counted together with labels and annotations. A key that the claim had before
// may stay as it is.
func validateAdditionalPodMetadata(spec, old *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	now, before := v1alpha1.AdditionalPodMetadataOf(spec), v1alpha1.AdditionalPodMetadataOf(old)
	path = path.Child("additionalPodMetadata")
	if !fitsOn(spec, old) {
		return nil // which is an error of its own, and not one for each key besides
	}
	labels, annotations := path.Child("labels"), path.Child("annotations")
	errs := metav1validation.ValidateLabels(now.Labels, labels)
	errs = append(errs, apivalidation.ValidateAnnotations(now.Annotations, annotations)...)
	errs = append(errs, newPodKeys(now.Labels, before.Labels, labels, validatePodLabelKey)...)
	errs = append(errs, newPodKeys(now.Annotations, before.Annotations, annotations, validatePodAnnotationKey)...)
	errs = append(errs, validateSameValues(now.Labels, spec.Labels, labels, "labels")...)
	return append(errs, validateSameValues(now.Annotations, spec.Annotations, annotations, "annotations")...)
}

// newPodKeys lets additionalPodMetadata bring no keys that mean something to who runs pods,
// or that ofKind refuses.
func newPodKeys(now, before map[string]string, path *field.Path, ofKind func(*field.Path, string) *field.Error) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if value, had := before[key]; had && value == now[key] {
			continue
		}
		restricted := slices.IndexFunc(restrictedDomains, func(domain string) bool { return isOf(key, domain) })
		if restricted >= 0 {
			errs = append(errs, field.Forbidden(path.Key(key), fmt.Sprintf(
				"keys of %s are not for claims: they belong into the pod template", restrictedDomains[restricted])))
		} else if err := ofKind(path, key); err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, newPlatformKeys(map[string]string{key: ""}, nil, path)...)
		}
	}
	return errs
}

// validatePodLabelKey lets those labels of agents.kruise.io be there that labels of a claim
// may bring, which go on the pod as well.
func validatePodLabelKey(path *field.Path, key string) *field.Error {
	if reservedLabels.Has(key) || isSandlotKey(key) || strings.HasPrefix(key, v1alpha1.E2BKeyPrefix) {
		return reserved(path, key)
	}
	return nil
}

// validatePodAnnotationKey keeps the annotations of agents.kruise.io to Sandboxes.
func validatePodAnnotationKey(path *field.Path, key string) *field.Error {
	switch {
	case reservedAnnotations.Has(key), isSandlotKey(key):
		return reserved(path, key)
	case key == v1alpha1.AnnotationCleanup:
		return cleanupForbidden(path)
	case isOf(key, v1alpha1.GroupName):
		return field.Forbidden(path.Key(key), fmt.Sprintf(
			"annotations of %s are for Sandboxes: put it into spec.annotations", v1alpha1.GroupName))
	}
	return nil
}

// isOf reports whether a key is of a domain or of one below it.
func isOf(key, parent string) bool {
	domain, _, hasDomain := strings.Cut(strings.ToLower(key), "/")
	return hasDomain && (domain == parent || strings.HasSuffix(domain, "."+parent))
}

// validateSameValues lets a key be among those for the pods alone, and among those for
// sandbox and pod, if both say the same.
func validateSameValues(additional, all map[string]string, path *field.Path, other string) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(additional)) {
		if value, both := all[key]; both && value != additional[key] {
			errs = append(errs, field.Invalid(path.Key(key), additional[key], fmt.Sprintf(
				"spec.%s has another value for it, and the pod gets both", other)))
		}
	}
	return errs
}
