// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"bytes"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// UnknownFieldWarnings returns a warning for each unknown field in the templates that a write
// changes. Such a field is stored, because a newer cluster may know it, but most often it is a
// typo. It returns nothing in the groups of agent-sandbox, where decoding follows fieldValidation.
func UnknownFieldWarnings(ctx context.Context, is, was *v1alpha1.EmbeddedSandboxTemplate) []string {
	if OfAgentSandbox(ctx) {
		return nil
	}
	path := field.NewPath("spec")
	var unknown []error
	if is.Template != nil && (was.Template == nil || !bytes.Equal(is.Template.Raw, was.Template.Raw)) {
		unknown = v1alpha1.UnknownPodTemplateFields(is.Template, path.Child("template"))
	}
	unknown = append(unknown, unknownInClaims(is.VolumeClaimTemplates, was.VolumeClaimTemplates)...)
	return texts(unknown)
}

// UnknownClaimFieldWarnings is like UnknownFieldWarnings, for the volume claim templates of a
// SandboxClaim.
func UnknownClaimFieldWarnings(ctx context.Context, is, was []runtime.RawExtension) []string {
	if OfAgentSandbox(ctx) {
		return nil
	}
	return texts(unknownInClaims(is, was))
}

func unknownInClaims(is, was []runtime.RawExtension) []error {
	if slices.EqualFunc(is, was, func(a, b runtime.RawExtension) bool { return bytes.Equal(a.Raw, b.Raw) }) {
		return nil
	}
	return v1alpha1.UnknownVolumeClaimFields(is, field.NewPath("spec", "volumeClaimTemplates"))
}

func texts(errs []error) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}
