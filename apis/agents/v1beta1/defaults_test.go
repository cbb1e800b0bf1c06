// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

func TestDefaultsOfSandbox(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ mode, wantMode, policy, wantPolicy string }{
		{"", "Running", "", "Retain"},
		{"Suspended", "Suspended", "Delete", "Delete"},
	} {
		sandbox := &Sandbox{Spec: SandboxSpec{OperatingMode: OperatingMode(tc.mode), ShutdownPolicy: ShutdownPolicy(tc.policy)}}
		scheme.Default(sandbox)
		if spec := sandbox.Spec; spec.OperatingMode != OperatingMode(tc.wantMode) || spec.ShutdownPolicy != ShutdownPolicy(tc.wantPolicy) {
			t.Errorf("of %+v became %s and %s", tc, spec.OperatingMode, spec.ShutdownPolicy)
		}
	}
}
