// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "maps"

// ClaimConditionMetadataSynced says how the last change went of the labels, annotations or
// additionalPodMetadata of a claim that had sandboxes: true when these have what the claim
// says, and false with ReasonInvalidMetadata when some keep what they had, because
// additionalPodMetadata gives another value to a key of their pod template. It is there
// only if there was such a change, and is about the one that status.observedGeneration has.
const ClaimConditionMetadataSynced = "MetadataSynced"

// AnnotationPodMetadataInClaim lists, on a sandbox, the labels and annotations that its
// claim put into the pod template, so that they can be distinguished from the template's
// own and removed again. It has the form of AnnotationUpdatedMetadataInClaim, which lists
// those of the sandbox. A sandbox without it has none.
const AnnotationPodMetadataInClaim = SandlotKeyPrefix + "pod-metadata-in-claim"

// AdditionalPodMetadataOf returns the additionalPodMetadata of a claim, which is empty if
// the claim has none. Its maps are those of the claim.
func AdditionalPodMetadataOf(spec *SandboxClaimSpec) PodMetadata {
	if spec.AdditionalPodMetadata == nil {
		return PodMetadata{}
	}
	return *spec.AdditionalPodMetadata
}

// SameMetadata reports whether two specs put the same on sandboxes and pods.
func SameMetadata(a, b *SandboxClaimSpec) bool {
	onPodsA, onPodsB := AdditionalPodMetadataOf(a), AdditionalPodMetadataOf(b)
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		maps.Equal(onPodsA.Labels, onPodsB.Labels) && maps.Equal(onPodsA.Annotations, onPodsB.Annotations)
}

// InvalidMetadataMessage is the status message of a claim whose additionalPodMetadata the
// pod template does not take.
func InvalidMetadataMessage(why string) string {
	return "invalid additionalPodMetadata: " + why
}
