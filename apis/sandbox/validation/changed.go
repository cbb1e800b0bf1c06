// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// An update is checked for what it changes. What is stored was legal once, or was
// made by the server itself; to check it again would keep everybody from changing
// the rest of the object, and from taking its finalizers away.

func validateChangedTemplate(embedded, old *v1alpha1.EmbeddedSandboxTemplate, path *field.Path) field.ErrorList {
	if sameSource(embedded, old) {
		return nil
	}
	return validateEmbeddedTemplate(embedded, path)
}

func validateChangedClaims(embedded, old *v1alpha1.EmbeddedSandboxTemplate, path *field.Path) field.ErrorList {
	if sameClaims(embedded, old) {
		return nil
	}
	return validateVolumeClaimTemplates(embedded.VolumeClaimTemplates, path.Child("volumeClaimTemplates"))
}

func validateChangedPause(strategy, old *v1alpha1.PauseStrategy, path *field.Path) field.ErrorList {
	if reflect.DeepEqual(strategy, old) {
		return nil
	}
	return validatePauseStrategy(strategy, path.Child("pauseStrategy"))
}

func validateChangedMaxUnavailable(value, old *intstr.IntOrString, path *field.Path) field.ErrorList {
	if reflect.DeepEqual(value, old) {
		return nil
	}
	return validateMaxUnavailable(value, path.Child("maxUnavailable"))
}

// SamePodsOfSets says whether two sets say the same of what their pods look like.
func SamePodsOfSets(a, b *v1alpha1.SandboxSetSpec) bool {
	return samePods(&a.EmbeddedSandboxTemplate, &b.EmbeddedSandboxTemplate) && samePatch(a.Patch, b.Patch)
}

// SamePodsOfTemplates says whether two templates say the same of what their pods
// look like.
func SamePodsOfTemplates(a, b *v1alpha1.SandboxTemplateSpec) bool {
	return samePods(&a.EmbeddedSandboxTemplate, &b.EmbeddedSandboxTemplate)
}

func samePods(a, b *v1alpha1.EmbeddedSandboxTemplate) bool {
	return sameSource(a, b) && sameClaims(a, b)
}

// sameSource says whether pods are made from the same template.
func sameSource(a, b *v1alpha1.EmbeddedSandboxTemplate) bool {
	if !reflect.DeepEqual(a.TemplateRef, b.TemplateRef) {
		return false
	}
	if a.Template == nil || b.Template == nil {
		return a.Template == b.Template
	}
	return sameJSON(*a.Template, *b.Template)
}

func sameClaims(a, b *v1alpha1.EmbeddedSandboxTemplate) bool {
	return slices.EqualFunc(a.VolumeClaimTemplates, b.VolumeClaimTemplates, sameJSON)
}

func sameJSON(a, b runtime.RawExtension) bool {
	return bytes.Equal(a.Raw, b.Raw) || reflect.DeepEqual(decodeRaw(&a), decodeRaw(&b))
}

// decodeRaw reads JSON with numbers as they are written; nil is what cannot be
// read.
func decodeRaw(raw *runtime.RawExtension) any {
	data, err := raw.MarshalJSON()
	if err != nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil
	}
	return value
}
