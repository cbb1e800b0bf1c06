// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestShutdownPolicyOfASandbox(t *testing.T) {
	for policy, want := range map[v1alpha1.ShutdownPolicy][]string{
		"": nil, v1alpha1.ShutdownDelete: nil, v1alpha1.ShutdownRetain: nil,
		v1alpha1.ShutdownDeleteForeground: {`spec.shutdownPolicy: Unsupported value: "DeleteForeground": supported values: "Delete", "Retain"`},
	} {
		changed := sandbox(t, func(s *v1alpha1.Sandbox) { s.Spec.ShutdownPolicy = policy })
		expect(t, ValidateSandbox(changed), want)
		expect(t, ValidateSandboxUpdate(changed, sandbox(t, nil)), want)
		expect(t, ValidateSandboxUpdate(changed, changed), nil)
	}
}
