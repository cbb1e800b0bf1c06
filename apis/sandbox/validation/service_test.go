// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestValidateService: service: true is refused on a Sandbox whose name is not valid for a Service.
// A stored Sandbox that has it already can still be updated in other fields.
func TestValidateService(t *testing.T) {
	refused := []string{"spec.service: Invalid value: true: \""}
	for name, want := range map[string][]string{"box": nil, strings.Repeat("a", 63): nil, strings.Repeat("a", 64): refused, "py3.12": refused} {
		with := &v1alpha1.Sandbox{ObjectMeta: meta(name)}
		with.Spec.Template, with.Spec.Service = rawTemplate(t), ptr.To(true)
		expect(t, ValidateSandbox(with), want)
		without := with.DeepCopy()
		without.Spec.Service = nil
		expect(t, ValidateSandbox(without), nil)
		expect(t, ValidateSandboxUpdate(with, without), want)
		paused := with.DeepCopy()
		paused.Spec.Paused = true
		expect(t, ValidateSandboxUpdate(paused, with), nil)
	}
}
