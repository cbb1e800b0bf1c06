// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxPodMetadataKeys bounds each list of a PodMetadataPolicy, which every claim is held
// against.
const maxPodMetadataKeys = 64

// validatePlatformKeys lets a claim bring no keys that platforms act on. Those that it
// had before there was the rule may stay, and reach no pod: see claims.PodMetadata.
func validatePlatformKeys(spec, old *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	errs := newPlatformKeys(spec.Labels, old.Labels, path.Child("labels"))
	return append(errs, newPlatformKeys(spec.Annotations, old.Annotations, path.Child("annotations"))...)
}

func newPlatformKeys(now, before map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, had := before[key]; !had && v1alpha1.IsPlatformKey(key) {
			errs = append(errs, field.Forbidden(path.Key(key), fmt.Sprintf(
				"%s means something to the platform that runs pods: it belongs into the pod template", key)))
		}
	}
	return errs
}

// validatePodMetadataPolicy checks a policy that differs from old.
func validatePodMetadataPolicy(policy, old *v1alpha1.PodMetadataPolicy, path *field.Path) field.ErrorList {
	if policy == nil || reflect.DeepEqual(policy, old) {
		return nil
	}
	errs := validateKeyPatterns(policy.Labels, path.Child("labels"))
	return append(errs, validateKeyPatterns(policy.Annotations, path.Child("annotations"))...)
}

// validateKeyPatterns takes keys, and beginnings of keys that end in *.
func validateKeyPatterns(patterns []string, path *field.Path) field.ErrorList {
	if len(patterns) > maxPodMetadataKeys {
		return field.ErrorList{field.TooMany(path, len(patterns), maxPodMetadataKeys)}
	}
	var errs field.ErrorList
	for i, pattern := range patterns {
		key, isPrefix := strings.CutSuffix(pattern, "*")
		if v1alpha1.IsPlatformKey(key) {
			errs = append(errs, field.Invalid(path.Index(i), pattern, "never reaches a pod from a claim: it means something to the platform that runs pods"))
			continue
		}
		if isPrefix {
			key += "x" // any key that begins like this
		}
		for _, msg := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(path.Index(i), pattern, msg))
		}
	}
	return errs
}
