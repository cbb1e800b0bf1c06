// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// ClaimLimits are the bounds that an installation sets on claims. An update is held to
// them by what it makes more of, so that a claim from before a bound was lowered can be
// changed otherwise, and brought nearer to the bound.
type ClaimLimits struct {
	// MaxTimeout is the longest claimTimeout, and MaxWaitReadyTimeout the longest
	// waitReadyTimeout.
	MaxTimeout, MaxWaitReadyTimeout time.Duration
	// MaxBytes is how many bytes of labels, annotations, additionalPodMetadata, env,
	// volumeClaimTemplates, envVars and dynamicVolumesMount one claim may put on its
	// sandboxes, all copies together.
	MaxBytes int64
}

// DefaultClaimLimits are the bounds where an installation says nothing. 64 MiB are 10,000
// sandboxes with 6.5 KiB each: more than that is no metadata any more.
func DefaultClaimLimits() ClaimLimits {
	return ClaimLimits{MaxTimeout: 24 * time.Hour, MaxWaitReadyTimeout: time.Hour, MaxBytes: 64 << 20}
}

const (
	// maxClaimMetadataBytes and maxClaimMetadataKeys bound the labels, annotations and
	// additionalPodMetadata that a claim puts on each of its sandboxes, together: most are
	// written twice a sandbox, for it and for its pod.
	maxClaimMetadataBytes = 8 << 10
	maxClaimMetadataKeys  = 64

	// maxOwnAnnotationBytes bounds the annotations of the claim itself. They are on no
	// sandbox, but the claim is written again each time some of its sandboxes are bound.
	// Clients that apply keep the whole manifest in one.
	maxOwnAnnotationBytes = 64 << 10
)

// validateOwnAnnotations checks those of the claim itself.
func validateOwnAnnotations(annotations, old map[string]string) field.ErrorList {
	if size(annotations) <= max(maxOwnAnnotationBytes, size(old)) {
		return nil
	}
	return field.ErrorList{field.TooLong(metadataPath.Child("annotations"), "", maxOwnAnnotationBytes)}
}

// validateCopied checks how much a claim puts on its sandboxes, if that is more than
// old does, which is empty for a new claim. Of the rest,
// everything is immutable.
func (l ClaimLimits) validateCopied(spec, old *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	now, before := metadataOf(spec), metadataOf(old)
	switch {
	case now.bytes > max(maxClaimMetadataBytes, before.bytes):
		return field.ErrorList{{
			Type: field.ErrorTypeTooLong, Field: now.largest(path).String(), BadValue: field.OmitValueType{},
			Detail: fmt.Sprintf("labels, annotations and additionalPodMetadata together may not be more than %d bytes: each sandbox gets them",
				maxClaimMetadataBytes),
		}}
	case now.keys > max(maxClaimMetadataKeys, before.keys):
		return field.ErrorList{{
			Type: field.ErrorTypeTooMany, Field: now.largest(path).String(), BadValue: now.keys,
			Detail: fmt.Sprintf("labels, annotations and additionalPodMetadata together must have at most %d keys: each sandbox gets them",
				maxClaimMetadataKeys),
		}}
	}
	return l.validateWrites(spec, old, path)
}

// fitsOn reports whether a claim puts no more keys and bytes on its sandboxes than it may.
func fitsOn(spec, old *v1alpha1.SandboxClaimSpec) bool {
	now, before := metadataOf(spec), metadataOf(old)
	return now.bytes <= max(maxClaimMetadataBytes, before.bytes) && now.keys <= max(maxClaimMetadataKeys, before.keys)
}

// copiedMetadata is how much metadata a claim puts on each of its sandboxes.
type copiedMetadata struct {
	bytes, keys int
	// parts are the bytes by where they are in the spec.
	parts map[string]int
}

func metadataOf(spec *v1alpha1.SandboxClaimSpec) copiedMetadata {
	additional := v1alpha1.AdditionalPodMetadataOf(spec)
	m := copiedMetadata{parts: map[string]int{
		"labels": size(spec.Labels), "annotations": size(spec.Annotations),
		"additionalPodMetadata": size(additional.Labels) + size(additional.Annotations),
	}}
	for _, n := range m.parts {
		m.bytes += n
	}
	m.keys = len(spec.Labels) + len(spec.Annotations) + len(additional.Labels) + len(additional.Annotations)
	return m
}

// largest is the field that is to blame if there is too much.
func (m *copiedMetadata) largest(path *field.Path) *field.Path {
	most := "labels"
	for _, part := range []string{"annotations", "additionalPodMetadata"} {
		if m.parts[part] > m.parts[most] {
			most = part
		}
	}
	return path.Child(most)
}

// validateWrites checks what the copies of a claim's parts come to.
func (l ClaimLimits) validateWrites(spec, old *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	each, replicas := copiedBytes(spec), int64(replicasOf(spec.Replicas))
	if all := each * replicas; all > l.MaxBytes && each > copiedBytes(old) {
		return field.ErrorList{field.Invalid(path.Child("replicas"), replicas, fmt.Sprintf(
			"labels, annotations, additionalPodMetadata, env, volumeClaimTemplates, envVars and dynamicVolumesMount are %d bytes for each sandbox and %d for all, but one claim may write %d; ask for fewer sandboxes, or for less on each",
			each, all, l.MaxBytes))}
	}
	return nil
}

// copiedBytes is how much a claim puts on each of its sandboxes. Both the sandbox and its
// pod template hold labels and annotations, and the template alone what is additional, as
// JSON, which escapes some characters in six bytes.
func copiedBytes(spec *v1alpha1.SandboxClaimSpec) int64 {
	additional := v1alpha1.AdditionalPodMetadataOf(spec)
	each := 2*(encoded(spec.Labels)+encoded(spec.Annotations)) + encoded(spec.Env) +
		encoded(additional.Labels) + encoded(additional.Annotations) + sealedBytes(spec)
	for _, volume := range spec.VolumeClaimTemplates {
		each += int64(len(volume.Raw))
	}
	return each
}

// encoded is how long a value is as JSON.
func encoded[T map[string]string | []v1alpha1.SandboxClaimEnvVar](value T) int64 {
	if len(value) == 0 {
		return 0
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return 0 // strings always encode
	}
	return int64(len(raw))
}

// size is how long keys and values of labels or annotations are.
func size(values map[string]string) int {
	n := 0
	for key, value := range values {
		n += len(key) + len(value)
	}
	return n
}
