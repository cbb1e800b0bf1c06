// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/agents/v1beta1"
)

func TestDefaultsOfSandbox(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	zero, one := int32(0), int32(1)
	for _, tc := range []struct {
		replicas *int32
		want     int32
	}{{nil, 1}, {&zero, 0}, {&one, 1}} {
		sandbox := &Sandbox{Spec: SandboxSpec{Replicas: tc.replicas}}
		scheme.Default(sandbox)
		if got := sandbox.Spec.Replicas; got == nil || *got != tc.want || sandbox.Spec.ShutdownPolicy != v1beta1.ShutdownRetain {
			t.Errorf("of %v became %+v", tc.replicas, sandbox.Spec)
		}
	}
}
