// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// ErrInvalid means that references and a patch lead to no valid pod template.
var ErrInvalid = errors.New("the pod template is not valid")

var reasons = []struct {
	err    error
	reason string
}{
	{podtemplate.ErrTemplateNotFound, v1alpha1.ReasonTemplateNotFound},
	{podtemplate.ErrTemplateCycle, v1alpha1.ReasonTemplateCycle},
	{podtemplate.ErrTemplateKind, v1alpha1.ReasonTemplateKindWrong},
	{podtemplate.ErrPatch, v1alpha1.ReasonInvalidPatch},
	{podtemplate.ErrNoTemplate, v1alpha1.ReasonInvalidTemplate},
	{ErrInvalid, v1alpha1.ReasonInvalidTemplate},
}

// ReasonFor returns the reason in conditions for why a template cannot be used, or an
// empty string for an error that is not about the template.
func ReasonFor(err error) string {
	for _, known := range reasons {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	return ""
}

// IsReason reports whether a reason is one that ReasonFor returns.
func IsReason(reason string) bool {
	for _, known := range reasons {
		if reason == known.reason {
			return true
		}
	}
	return false
}
