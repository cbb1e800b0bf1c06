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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Claims put labels and annotations on sandboxes, where the system keeps its own.
// A claim that could write those could hand a sandbox to another claim, or make
// it look free. OpenKruise Agents finds out late and retries until the claim
// times out; here the create is refused.
//
// Keys of the same prefixes that are meant for users, such as cleanup-enabled,
// are not in these lists.
var (
	reservedLabels = sets.New(
		v1alpha1.LabelSandboxPool,
		v1alpha1.LabelSandboxTemplate,
		v1alpha1.LabelSandboxClaimed,
		v1alpha1.LabelClaimName,
		v1alpha1.LabelTemplateHash,
		v1alpha1.LabelReservedFailedSandbox,
		v1alpha1.LabelSandboxID,
		v1alpha1.LabelUpdateOps,
		v1alpha1.LabelUpgradeFailed,
		v1alpha1.LabelPodTemplateHash,
		v1alpha1.LabelCreatedBy,
		v1alpha1.LabelOwner,
		v1alpha1.LabelSandboxName,
	)

	reservedAnnotations = sets.New(
		v1alpha1.AnnotationLock,
		v1alpha1.AnnotationOwner,
		v1alpha1.AnnotationClaimTimestamp,
		v1alpha1.AnnotationInitRuntimeRequest,
		v1alpha1.AnnotationRuntimeAccessToken,
		v1alpha1.AnnotationUpdatedMetadataInClaim,
		v1alpha1.AnnotationRuntimeURL,
		v1alpha1.AnnotationRuntimeTLSPort,
		v1alpha1.AnnotationRestoreFrom,
		v1alpha1.AnnotationSandboxPriority,
		v1alpha1.AnnotationUpgradeResumeTrigger,
		v1alpha1.AnnotationMemberlistURL,
		v1alpha1.AnnotationSandboxID,
		v1alpha1.AnnotationCreatedBy,
		v1alpha1.AnnotationInplaceUpdateState,
		v1alpha1.AnnotationHashImmutablePart,
		v1alpha1.AnnotationHashWithoutImageResources,
		v1alpha1.AnnotationE2BCSIVolumeConfig,
		v1alpha1.AnnotationE2BEnvdAccessToken,
		v1alpha1.AnnotationE2BEnvdURL,
	)
)

// validateClaimMetadata checks what a claim puts on its sandboxes: how much that is
// and, if it is not too much, the keys and values.
func validateClaimMetadata(spec, old *v1alpha1.SandboxClaimSpec, limits ClaimLimits, path *field.Path) field.ErrorList {
	if errs := limits.validateCopied(spec, old, path); len(errs) > 0 {
		return errs
	}
	errs := validateClaimLabels(spec.Labels, path.Child("labels"))
	errs = append(errs, validateCleanup(spec.Annotations, old.Annotations, path.Child("annotations"))...)
	return append(errs, validateClaimAnnotations(spec.Annotations, path.Child("annotations"))...)
}

// validateCleanup lets no claim ask that its own sandboxes be recycled: it would ask for
// each anew that it is given.
func validateCleanup(annotations, old map[string]string, path *field.Path) field.ErrorList {
	value, asks := annotations[v1alpha1.AnnotationCleanup]
	if before, asked := old[v1alpha1.AnnotationCleanup]; !asks || asked && before == value {
		return nil
	}
	return field.ErrorList{cleanupForbidden(path)}
}

func cleanupForbidden(path *field.Path) *field.Error {
	return field.Forbidden(path.Key(v1alpha1.AnnotationCleanup), fmt.Sprintf(
		"%s is reserved for Sandboxes: annotate the Sandbox that is to be recycled, or release the claim", v1alpha1.AnnotationCleanup))
}

func validateClaimLabels(labels map[string]string, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(labels, path)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		// Labels also go on the pod template, where keys of E2B may not be.
		if reservedLabels.Has(key) || isSandlotKey(key) || strings.HasPrefix(key, v1alpha1.E2BKeyPrefix) {
			errs = append(errs, reserved(path, key))
		}
	}
	return errs
}

func validateClaimAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(annotations, path)
	errs = append(errs, validateRetention(annotations, path)...)
	errs = append(errs, validatePrewarmStrategy(annotations, path)...)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if reservedAnnotations.Has(key) || isSandlotKey(key) {
			errs = append(errs, reserved(path, key))
		}
	}
	return errs
}

// validatePrewarmStrategy takes the one strategy there is: see the default of
// warmPool.
func validatePrewarmStrategy(annotations map[string]string, path *field.Path) field.ErrorList {
	key := v1alpha1.AnnotationE2BPrewarmStrategy
	if strategy, ok := annotations[key]; ok && strategy != v1alpha1.WarmPoolNone {
		return field.ErrorList{field.NotSupported(path.Key(key), strategy, []string{v1alpha1.WarmPoolNone})}
	}
	return nil
}

func isSandlotKey(key string) bool {
	return strings.HasPrefix(key, v1alpha1.SandlotKeyPrefix)
}

func reserved(path *field.Path, key string) *field.Error {
	return field.Forbidden(path.Key(key), fmt.Sprintf("%s is reserved: the system writes it itself", key))
}
